"""Reading, checking and exporting in an environment without what only search and pictures need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

VEE = ROOT / "examples" / "vee-6.2B-p4-m8-cap0.75.json"
LIGHT = """
import sys
for name in ("matplotlib", "networkx", "numba", "ortools", "ray", "torch"):
    sys.modules[name] = None  # as if it were not installed
from pipesat.cli import main
sys.exit(main())
"""


def light(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIGHT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_schedule_goes_to_torch_and_back(tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    assert light("export", VEE, "v-half", "--to", "torch", "-o", order).returncode == 0
    assert light("check", VEE, order).stdout.startswith("Valid  ")


@pytest.mark.parametrize(
    ("words", "package"),
    [(("solve", VEE), "ortools"), (("show", VEE, "v-half", "--png", "a.png"), "matplotlib")],
)
def test_what_is_missing_is_named(words: tuple[object, ...], package: str) -> None:
    done = light(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        f"pipesat: error: this needs {package}, which is not installed: pip install {package}"
    )


def test_a_schedule_with_times_is_read_without_compiled_loops(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    assert light("export", VEE, "v-half", "--to", "schedule", "-o", schedule).returncode == 0
    look = "import atexit; atexit.register(lambda: print('numba' in sys.modules))\nfrom pipesat"
    code = LIGHT.replace('"numba", ', "").replace("from pipesat", look)
    for command in ("check", "show"):
        words = [sys.executable, "-c", code, command, str(VEE), str(schedule)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout.endswith("False\n")
