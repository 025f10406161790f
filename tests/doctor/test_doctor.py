"""``pipesat --doctor``: what it says of an installation, of a broken one, and of containers."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core import machine
from pipesat.core.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.core.machine import Cores, Memory
from pipesat.doctor import packages, self_check
from pipesat.doctor.machine import cores_line, memory_line
from pipesat.files.problem_file import parse_problem
from pipesat.heuristics import BASELINES
from tests.conftest import Run
from tests.support.oracle import plain_model_optimum

STEPS = ["solve", "check", "file", "torch-csv", "trace"]


# The command


@pytest.mark.slow
def test_a_whole_installation_is_well(cli: Run) -> None:
    outcome = cli("--doctor", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = outcome.json
    assert report["ok"] is True
    lines = {line["name"]: line for line in report["lines"]}
    assert [n for n, line in lines.items() if line["part"] == "self-check"] == STEPS
    for name in ("pipesat", "ortools", "numpy"):
        assert lines[name]["detail"] == importlib.metadata.version(name)
    assert lines["torch"]["part"] == "extras"
    assert (lines["torch"]["status"] == "missing") == (lines["torch"]["command"] is not None)
    assert {line["status"] for line in report["lines"]} <= {"ok", "missing"}
    assert 1 <= report["cores"]["affinity"] <= report["cores"]["machine"] == os.cpu_count()


def test_a_package_that_does_not_load_fails(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools", None)  # so that its import fails
    monkeypatch.setattr(self_check, "_solve", lambda: 1 / 0)
    outcome = cli("--doctor")
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    (ortools,) = [line for line in lines if line.startswith("ortools")]
    assert "FAILED" in ortools
    (solve,) = [line for line in lines if line.startswith("solve")]
    assert "FAILED" in solve
    assert "ZeroDivisionError" in solve
    assert not [line for line in lines if line.startswith("trace")]  # nothing to export
    assert lines[-1].startswith("2 of ")


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_the_terminal(
    cli: Run, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(self_check, "_solve", lambda: 1 / 0)
    monkeypatch.setenv("COLUMNS", str(width))
    outcome = cli("--doctor")
    assert outcome.code == 1
    assert max(map(len, outcome.out.splitlines())) <= width


# Packages


def test_what_is_missing_names_its_command() -> None:
    need = Requirement("no-such-distribution[fast]<10,>=2.3; extra == 'far'")
    line = packages.extra_line("far", need)
    assert (line.status, line.detail) == ("missing", "not installed")
    assert line.name == "no-such-distribution (far)"
    assert line.command == "pip install 'no-such-distribution[fast]<10,>=2.3'"
    assert packages.core_line(need).status == "FAILED"


def test_the_wrong_version_of_a_package() -> None:
    need = Requirement("numpy<1")
    version = importlib.metadata.version("numpy")
    reason = f"{version} is installed, pipesat needs <1"
    core, extra = packages.core_line(need), packages.extra_line("old", need)
    assert (core.status, core.detail) == ("FAILED", reason)
    assert (extra.status, extra.detail) == ("missing", reason)


def test_an_extra_that_does_not_load_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise OSError(f"lib{name}.so: cannot open shared object file")

    monkeypatch.setattr(packages.importlib, "import_module", broken)
    line = packages.extra_line("numpy", Requirement("numpy"))
    assert line.status == "FAILED"
    assert "OSError: libnumpy.so" in line.detail


# The self-check's own expectations


def test_its_problem_needs_the_search_and_the_proof() -> None:
    problem = parse_problem(self_check.PROBLEM)
    assert plain_model_optimum(problem) == self_check.OPTIMUM
    assert closed_form_bound(problem, "makespan").value < self_check.OPTIMUM
    for function in BASELINES.values():
        try:
            schedule = function(problem)
        except NotApplicable:
            continue
        assert check(problem, schedule) or schedule.makespan > self_check.OPTIMUM


def steps_with(change: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Names and states of a self-check whose solver returned a changed schedule."""
    problem, schedule, found = self_check._solve()
    changed = change(schedule)
    monkeypatch.setattr(self_check, "_solve", lambda: (problem, changed, found))
    return [(line.name, line.status) for line in self_check.self_check_lines()]


@pytest.mark.slow
def test_a_schedule_that_breaks_a_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_last(schedule: Any) -> Any:
        return replace(schedule, devices=(*schedule.devices[:-1], schedule.devices[-1][:-1]))

    assert steps_with(without_last, monkeypatch) == [("solve", "ok"), ("check", "FAILED")]


@pytest.mark.slow
def test_an_export_that_lies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    export = import_module("pipesat.export")
    honest = export.EXPORTERS["torch"]

    def swapped(problem: Any, schedule: Any) -> Any:
        exported = honest(problem, schedule)
        first, *rest = exported.data.decode().splitlines()
        cells = first.split(",")
        cells[-2:] = reversed(cells[-2:])
        return replace(exported, data="\n".join([",".join(cells), *rest, ""]).encode())

    monkeypatch.setitem(export.EXPORTERS, "torch", swapped)
    same = steps_with(lambda schedule: schedule, monkeypatch)
    assert same[-1] == ("torch-csv", "FAILED")


@pytest.mark.slow
def test_an_unproven_optimum_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "OPTIMUM", 35)
    (line,) = self_check.self_check_lines()
    assert line.status == "FAILED"
    assert "value 36 and bound 36" in line.detail


# The machine


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n"


def test_a_group_of_version_2_and_the_groups_around_it(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
            "sys/fs/cgroup/outer/inner/memory.max": f"{2 << 30}\n",
            "sys/fs/cgroup/outer/memory.max": "max\n",
        },
    )
    assert machine.cores(root).cgroup_quota == 1.5  # the outer group's
    assert machine.memory(root) == Memory(16 << 30, 8 << 30, 2 << 30)


def test_a_group_of_version_1_whose_path_is_the_hosts(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 << 30}\n",
        },
    )
    assert machine.cores(root).cgroup_quota == 4
    assert machine.memory(root) == Memory(None, None, 3 << 30)


@pytest.mark.parametrize("quota", ["-1", "0", "", "junk"])
def test_no_quota_and_no_limit(tmp_path: Path, quota: str) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert machine.cores(root).cgroup_quota is None
    assert machine.memory(root).cgroup_limit is None


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    assert machine.memory(tmp_path) == Memory(None, None, None)
    assert (
        memory_line(machine.memory(tmp_path)).detail == "unknown free of unknown; no cgroup limit"
    )


@pytest.mark.parametrize(
    ("cores", "usable", "said"),
    [
        (Cores(8, 4, None), 4, "4 of 8; no cgroup quota"),
        (Cores(8, 4, 6.0), 4, "4 of 8; affinity 4, cgroup quota 6"),
        (Cores(None, 4, 2.5), 2, "2; affinity 4, cgroup quota 2.5"),
        (Cores(8, 4, 0.5), 1, "1 of 8; affinity 4, cgroup quota 0.5"),
    ],
)
def test_no_more_threads_than_the_quota_feeds(cores: Cores, usable: int, said: str) -> None:
    assert cores.usable == usable
    assert cores_line(cores).detail == said


def test_as_many_cores_as_a_solve_takes() -> None:
    from pipesat.solver import solve

    problem = parse_problem(self_check.PROBLEM)
    assert solve(problem, time_limit=0).workers == machine.cores().usable
