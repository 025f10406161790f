"""The door to numba: where compiled code is kept, who may share it, and life without numba."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from pipesat.kernels import compiled
from tests.support.paths import ROOT

LOOP = """
from pipesat.kernels.compiled import compiled


@compiled
def doubled(number):
    return 2 * number


@compiled
def quadrupled(number):
    return doubled(doubled(number))
"""
CODE = """
import sys
sys.path.insert(0, {home!r})
from loop import quadrupled
from pipesat.kernels import compiled
print(quadrupled(4), compiled._folder(), compiled.why_interpreted())
"""


def started(home: Path, before: str = "", after: str = "", **more: str) -> subprocess.Popen[str]:
    if not (home / "loop.py").exists():  # its date is part of what code is kept under
        (home / "loop.py").write_text(LOOP)
    kept = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "HOME")}
    environment = kept | {"XDG_CACHE_HOME": str(home / "cache"), "HOME": str(home)} | more
    return subprocess.Popen(
        [sys.executable, "-c", before + CODE.format(home=str(home)) + after],
        env=environment | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert not err
    return out.split(maxsplit=2)


def test_two_processes_fill_an_empty_cache_at_once_and_a_third_reads_it(tmp_path: Path) -> None:
    both = [started(tmp_path), started(tmp_path)]
    for value, folder, *_ in map(said, both):
        assert value == "16"
        assert folder.startswith(str(tmp_path / "cache" / "pipesat"))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")}
    assert kept
    assert said(started(tmp_path))[0] == "16"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")} == kept


def test_a_folder_that_others_may_write_is_passed_over(tmp_path: Path) -> None:
    (name,) = {Path(said(started(tmp_path))[1]).name}
    folder = tmp_path / "cache" / "pipesat" / name
    folder.chmod(0o777)
    assert said(started(tmp_path))[1].startswith(str(tmp_path / ".cache"))


def test_where_nothing_may_be_written_code_lasts_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file")  # a folder in a file can never be made
    process = started(tmp_path, XDG_CACHE_HOME=nowhere, HOME=nowhere, TMPDIR=nowhere)
    value, folder, *_ = said(process)
    assert value == "16"
    assert folder == "None" or not folder.startswith(nowhere)


@pytest.mark.parametrize("error", ["ImportError('needs numpy 9 or less')", ""])
def test_without_numba_loops_run_as_python(tmp_path: Path, error: str) -> None:
    hide = "import sys; sys.modules['numba'] = None\n"
    if error:  # what numba does beside a numpy that is too new for it
        (tmp_path / "numba.py").write_text(f"raise {error}")
        hide = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    value, _, why = said(started(tmp_path, hide))
    assert value == "16"
    assert why.startswith("numba does not load: ")


def test_small_calls_wait_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for numba's own import, and what a loop calls runs as Python with it."""
    released = threading.Event()
    monkeypatch.setattr(compiled, "why_interpreted", lambda: str(released.wait(60)))
    inner = compiled.compiled(lambda numbers: 2 * numbers.sum())
    outer = compiled.compiled_meanwhile(lambda numbers: inner(numbers) + 1)
    assert outer(np.arange(4)) == 13
    assert not released.is_set()
    released.set()


def test_numba_of_others_keeps_its_own_folder(tmp_path: Path) -> None:
    process = started(tmp_path, after="import numba; assert not numba.config.CACHE_DIR")
    assert said(process)[0] == "16"
