"""The scripts of docs/python.md whose processes are ranks run as they stand."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="needs torch: pip install 'pipesat[torch]'",
    ),
]
PAGE = (ROOT / "docs" / "python.md").read_text()
STARTS = r"import pipesat\n(?:from [^\n]*\n)+\nif __name"
(LOCAL,) = re.findall(rf"```python\n({STARTS}.*?)```", PAGE, re.DOTALL)
RANK = """
import os, pipesat
two = pipesat.Problem.chain(devices=2, microbatches=2, F=2, B=2, W=2, comm=1, time_unit="ms")
measured = pipesat.run(two, two.schedule("1f1b"), shape="width=16", steps=1)
assert (measured is None) == (os.environ["RANK"] != "0")
"""
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]


@pytest.mark.parametrize(("script", "how"), [(LOCAL, []), (RANK, TORCHRUN)])
def test_a_script_of_the_page_runs(tmp_path: Path, script: str, how: list[str]) -> None:
    (tmp_path / "script.py").write_text(script)
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *how, "script.py"],
        cwd=tmp_path,
        env=dict(os.environ) | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths} | loopback,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if script == LOCAL:
        assert done.stdout.splitlines()[-1] == "True"  # parity
        assert (tmp_path / "timeline.json").is_file()
