"""``pipesat --doctor``: what it says of an installation, of a broken one, and of containers."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from pipesat import doctor
from pipesat.core import usable_cores
from tests.conftest import Run

# The command


@pytest.mark.slow
def test_a_whole_installation_is_well(cli: Run) -> None:
    outcome = cli("--doctor", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = outcome.json
    assert report["ok"] is True
    lines = {line["name"]: line for line in report["lines"]}
    assert [n for n, line in lines.items() if line["part"] == "self-check"] == ["solve"]
    for name in ("pipesat", "ortools", "numpy"):
        assert lines[name]["detail"] == importlib.metadata.version(name)
    assert lines["torch"]["part"] == "extras"
    assert (lines["torch"]["status"] == "missing") == (lines["torch"]["command"] is not None)
    assert {line["status"] for line in report["lines"]} <= {"ok", "missing"}


def raising(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("width", [80, 200])
def test_a_package_that_does_not_load_fails(
    cli: Run, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setitem(sys.modules, "ortools", None)  # so that its import fails
    monkeypatch.setattr(importlib.import_module("pipesat.compare.solve"), "solve", raising)
    monkeypatch.setenv("COLUMNS", str(width))
    outcome = cli("--doctor")
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    (ortools,) = [line for line in lines if line.startswith("ortools")]
    assert "FAILED" in ortools
    (solve,) = [line for line in lines if line.startswith("solve")]
    assert "ZeroDivisionError" in solve
    assert lines[-1].endswith("2 FAILED")
    assert max(map(len, lines)) <= width


# Packages


def test_what_is_missing_names_its_command() -> None:
    need = Requirement("no-such-distribution[fast]<10,>=2.3; extra == 'far'")
    line = doctor.line_of(need, "far")
    assert (line.status, line.detail) == ("missing", "not installed")
    assert line.name == "no-such-distribution (far)"
    assert line.command == "pip install 'no-such-distribution[fast]<10,>=2.3'"
    assert doctor.line_of(need).status == "FAILED"


def test_the_wrong_version_of_a_package() -> None:
    need = Requirement("numpy<1")
    version = importlib.metadata.version("numpy")
    reason = f"{version} is installed, pipesat needs <1"
    core, extra = doctor.line_of(need), doctor.line_of(need, "old")
    assert (core.status, core.detail) == ("FAILED", reason)
    assert (extra.status, extra.detail) == ("missing", reason)


def test_an_extra_that_does_not_load_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise OSError(f"lib{name}.so: cannot open shared object file")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    line = doctor.line_of(Requirement("numpy"), "numpy")
    assert line.status == "FAILED"
    assert "OSError: libnumpy.so" in line.detail


# The self-check's own expectations


@pytest.mark.slow
def test_a_schedule_that_breaks_a_rule_or_is_not_proven_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert doctor.solve_line().status == "ok"
    checker = importlib.import_module("pipesat.check.checker")
    monkeypatch.setattr(checker, "check", lambda *_: ["too much memory"])
    assert "too much memory" in doctor.solve_line().detail
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "OPTIMUM", 35)
    line = doctor.solve_line()
    assert (line.status, line.detail.startswith("value 36 and bound 36")) == ("FAILED", True)


def test_a_busy_machine_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    solving = importlib.import_module("pipesat.compare.solve")
    monkeypatch.setattr(solving, "solve", lambda _, **options: told.update(options))
    doctor.solve_line()
    assert told["deterministic"]  # steps are counted, not seconds


# The machine


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_group_of_version_2_and_the_groups_around_it(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
        },
    )
    assert usable_cores.quota(root) == 1.5  # the outer group's


def test_a_group_of_version_1_whose_path_is_the_hosts(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert usable_cores.quota(root) == 4


@pytest.mark.parametrize("quota", ["-1", "0", "", "junk"])
def test_no_quota_and_no_limit(tmp_path: Path, quota: str) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert usable_cores.quota(root) == math.inf


@pytest.mark.parametrize(("quota", "usable"), [(math.inf, 4), (6.0, 4), (2.5, 2), (0.5, 1)])
def test_no_more_threads_than_the_quota_feeds(
    monkeypatch: pytest.MonkeyPatch, quota: float, usable: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(usable_cores, "quota", lambda: quota)
    assert usable_cores.usable_cores() == usable


def test_as_many_cores_as_a_solve_takes() -> None:
    from pipesat.solver import SolveOptions, solve

    problem = doctor.known_problem()
    assert solve(problem, SolveOptions(time_limit=0)).workers == usable_cores.usable_cores()
