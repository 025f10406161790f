"""Processor time of each part that handles a schedule of 100,000 or 1,000,000 ops.

python -m experiments.large.run [OPS ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.pages import measured, table
from pipesat.check.checker import check
from pipesat.compare.schedules import schedule_of
from pipesat.heuristics.list_scheduling import Policy, list_schedules
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import measure
from pipesat.schedule.schedule_file import read_schedule, write_schedule
from pipesat.schedule.timing import time_order

PARTS = ("order", "timing", "check", "span", "measure", "write", "read")
MORE: dict[str, Any] = {"held_after_F": 3, "held_after_B": 1, "comm": 10}
TIMES: dict[str, Any] = {"F": 1000, "B": 1100, "W": 900}


def main(sizes: list[int]) -> None:
    print(measured())
    for ops in sizes:
        rows = []
        for devices in (8, 32):
            chain = Problem.chain(devices, ops // 3 // devices, memory="1f1b*1.5", **TIMES, **MORE)
            vee = Problem.vee(devices, ops // 6 // devices, memory=6 * devices, **TIMES, **MORE)
            cases = ((chain, "1f1b"), (chain, "zb-h1"), (chain, ""), (vee, ""))
            rows += [row(problem, name) for problem, name in cases]
        print("\n" + table((f"about {ops:,} ops", *PARTS), rows), flush=True)


def row(problem: Problem, name: str) -> list[str]:
    """Seconds of the processor of each part."""
    shape = "V" if len(problem.stages) > len(problem.devices) else "chain"
    cells: list[float] = []

    def timed(function: Callable[[], Any]) -> Any:
        begin = time.process_time()
        made = function()
        cells.append(time.process_time() - begin)
        return made

    if name:
        order = timed(lambda: schedule_of(problem, name)).order
    else:
        order = timed(lambda: next(list_schedules(problem, chosen=[Policy()]))).order
    schedule = timed(lambda: time_order(problem, order))
    cells[0] -= cells[1] if name else 0  # a hand-written schedule is timed as it is made
    assert not timed(lambda: check(problem, schedule))
    timed(lambda: time_order(problem, order, "span"))
    timed(lambda: measure(problem, schedule))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.json"
        timed(lambda: write_schedule(path, problem, schedule))
        assert timed(lambda: read_schedule(path, problem)).devices == schedule.devices
    title = f"{shape}, {len(problem.devices)} devices, {name or 'one greedy policy'}"
    return [title, *(f"{seconds:.2f}" for seconds in cells)]


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100_000, 1_000_000])
