"""One measurement of builds.py, in a process of its own: its last line is the row."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner import Row, since

WINDOWS = re.compile(r"(\d+) windows|windows[ a-z]* [\d.]+ s \((\d+) steps")  # old, new
SHAPE = {"F": 500, "B": 550, "W": 450, "held_after_F": 3, "held_after_B": 1, "comm": 10}


def solve(launched: float, file: str, limit: float, workers: int) -> Row:
    """What a solve ends with; ``windows`` of all lanes; seconds count from the process's start."""
    import ours

    import pipesat

    problem = ours.read_problem(file)
    began = since(launched)
    result = pipesat.solve(problem, time_limit=limit, workers=workers)
    row = ours.row_of(result, began)
    windows = [int(a or b) for a, b in WINDOWS.findall(row["explanation"])]
    return row | {
        "windows": sum(windows),
        "solve_s": round(result.wall_s, 2),
        "limit": limit,
    }


def starts(_: float, file: str) -> Row:
    """Processor seconds of all hand-written schedules that a search starts from, by source."""
    import ours

    from pipesat.solver.starts import StartingSchedules

    problem = ours.read_problem(file)
    each: Counter[str] = Counter()
    began = time.process_time()
    for made in StartingSchedules(problem, "all", lambda: False):
        each[made.source] += (now := time.process_time()) - began
        began = now
    return {"all_s": round(each.total(), 3), "each_s": each}


def million(_: float, ops: int) -> Row:
    """Processor seconds to list, time and check a V of 8 devices, after a small one."""
    listed(4_800)
    return listed(ops)


def listed(ops: int) -> Row:
    """Seconds of list scheduling by one policy, timing included; of timing its order; of a check.

    ``loop_s`` is the compiled loop that times an order as arrays, in a build that has one.
    """
    from pipesat.check.checker import check
    from pipesat.heuristics.list_scheduling import Policy, list_schedules
    from pipesat.problem.problem import Problem
    from pipesat.schedule.timing import time_order

    problem = Problem.vee(8, ops // 48, memory=48, **SHAPE)
    (made, *_), list_s = timed(lambda: [*list_schedules(problem, chosen=[Policy()])])
    _, timing_s = timed(lambda: time_order(problem, made.order))
    wrong, check_s = timed(lambda: check(problem, made))
    assert not wrong
    row = {"list_s": list_s, "timing_s": timing_s, "check_s": check_s, "loop_s": None}
    with contextlib.suppress(ImportError):
        from pipesat.kernels.timing import makespan_of
        from pipesat.schedule.arrays_of import coded

        arrays = coded(problem, made.order)
        row["loop_s"] = min(timed(lambda: makespan_of(*arrays))[1] for _ in range(5))
    return row


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and its processor seconds."""
    began = time.process_time()
    made = function()
    return made, round(time.process_time() - began, 6)


def main() -> None:
    checkout, what, *arguments = json.loads(sys.argv[1])
    row = globals()[what](*arguments)
    import pipesat

    assert Path(pipesat.__file__).is_relative_to(checkout), pipesat.__file__
    print(json.dumps(row))


if __name__ == "__main__":
    main()
