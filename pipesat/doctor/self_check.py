"""A solve of a second or two and what must hold of its answer: the chain from file to runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipesat.doctor.report import Line

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule

TIME_LIMIT = 8.0  # seconds; it takes one or two on an idle core

PROBLEM = {
    "format": "pipesat.problem/1",
    "name": "doctor",
    "microbatches": 4,
    "devices": [{"memory": 4}] * 3,
    "stages": [
        {"device": 0, "F": 1, "B": 2, "W": 3, "held_after_F": 2, "held_after_B": 1}
        | {"backward": "fused"},  # so torch can run any order of it unchanged
        {"device": 1, "F": 1, "B": 4, "W": 1, "held_after_F": 2, "held_after_B": 1},
        {"device": 2, "F": 2, "B": 1, "W": 3, "held_after_F": 2, "held_after_B": 1},
    ],
}
OPTIMUM = 36
"""Least makespan: no hand-written schedule reaches it and no formula proves it (38 and 34), so the
search has to find it and CP-SAT to prove it. A test holds it against an independent model."""


def self_check_lines() -> Iterator[Line]:
    """Solve, check, write and read, export and parse back; a line per step, the first fault last.

    Nothing is left behind: files go into a temporary folder.
    """
    steps: dict[str, Callable[[Problem, Schedule, Path], str]] = {
        "check": _check,
        "file": _file,
        "torch-csv": _torch_csv,
        "trace": _trace,
    }
    name = "solve"
    try:
        problem, schedule, found = _solve()
        yield Line("self-check", name, "ok", found)
        with tempfile.TemporaryDirectory(prefix="pipesat-doctor-") as folder:
            for name, step in steps.items():
                yield Line("self-check", name, "ok", step(problem, schedule, Path(folder)))
    except Exception as error:  # whatever it is, it belongs into the report
        reason = str(error) if isinstance(error, _Failed) else f"{type(error).__name__}: {error}"
        yield Line("self-check", name, "FAILED", reason)


class _Failed(Exception):
    """A step's answer is not what it has to be."""


def _solve() -> tuple[Problem, Schedule, str]:
    from pipesat.files.problem_file import parse_problem
    from pipesat.workflows.solve import solve

    problem = parse_problem(PROBLEM)
    result = solve(problem, time_limit=TIME_LIMIT, workers=1)
    bound = result.lower_bound
    if result.schedule is None:
        raise _Failed(f"{result.status}: {result.explanation or 'no schedule'}")
    if (result.value, bound) != (OPTIMUM, OPTIMUM):
        raise _Failed(
            f"value {result.value} and bound {bound} after {result.wall_s:.1f} s, expected "
            f"{OPTIMUM} for both: a busy machine, or the search does not work here"
        )
    return problem, result.schedule, f"makespan {OPTIMUM} proven in {result.wall_s:.1f} s"


def _check(problem: Problem, schedule: Schedule, folder: Path) -> str:
    del folder
    from pipesat.core.checker import check

    if violations := check(problem, schedule):
        raise _Failed(f"the solver's schedule breaks a rule: {violations[0]}")
    return f"{len(schedule)} ops keep every rule"


def _file(problem: Problem, schedule: Schedule, folder: Path) -> str:
    from pipesat.files.schedule_file import read_schedule, write_schedule

    write_schedule(folder / "schedule.json", problem, schedule)
    _same(read_schedule(folder / "schedule.json", problem).devices, schedule.devices)
    return f"{len(schedule)} ops written and read"


def _torch_csv(problem: Problem, schedule: Schedule, folder: Path) -> str:
    from pipesat.export import EXPORTERS
    from pipesat.export.torch.adapt import adapt
    from pipesat.export.torch.csv_file import read_torch_csv

    (folder / "schedule.csv").write_bytes(EXPORTERS["torch"](problem, schedule).data)
    back = read_torch_csv(folder / "schedule.csv", problem).schedule
    _same(back.order, adapt(problem, schedule).schedule.order)
    return f"{len(back)} ops written and parsed back"


def _trace(problem: Problem, schedule: Schedule, folder: Path) -> str:
    from pipesat.export import EXPORTERS
    from pipesat.export.trace import ops_in_trace

    (folder / "trace.json").write_bytes(EXPORTERS["trace"](problem, schedule).data)
    back = ops_in_trace((folder / "trace.json").read_bytes())
    ours = [(device, str(t.item), t.start, t.end - t.start) for device, t in schedule]
    _same(sorted(back.elements()), sorted(ours))
    return f"{len(ours)} ops written and parsed back"


def _same(back: object, written: object) -> None:
    if back != written:
        raise _Failed("what was read back is not what was written")
