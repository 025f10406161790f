"""Processor time of each part that handles a schedule of 100,000 or 1,000,000 ops.

python experiments/large/run.py [OPS ...]
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pipesat.core.checker import check
from pipesat.core.metrics import measure
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order
from pipesat.core.timing import time_order
from pipesat.files.schedule_file import read_schedule, write_schedule
from pipesat.heuristics import BASELINES
from pipesat.heuristics.list_scheduling import Policy, list_schedules

T = TypeVar("T")
LIMITED = {"held_after_F": 3, "held_after_B": 1, "comm": 10}


class Row:
    """One line of the table: what has been timed, in seconds of the processor."""

    def __init__(self, name: str) -> None:
        self.cells = [name]

    def timed(self, function: Callable[[], T]) -> T:
        begin = time.process_time()
        result = function()
        self.cells.append(f"{time.process_time() - begin:.2f}")
        return result


def main(sizes: list[int]) -> None:
    print(
        f"{time.strftime('%Y-%m-%d')}, {len(os.sched_getaffinity(0))} cores, {_processor()}, ",
        end="",
    )
    print(f"Python {platform.python_version()}\n")
    for ops in sizes:
        heads = [
            f"about {ops:,} ops",
            "order",
            "timing",
            "check",
            "span",
            "measure",
            "write",
            "read",
        ]
        print(f"| {' | '.join(heads)} |\n{'| --- ' * len(heads)}|")
        for devices in (8, 32):
            chain = Problem.chain(
                devices, ops // (3 * devices), F=1000, B=1100, W=900, memory="1f1b*1.5", **LIMITED
            )
            vee = Problem.vee(
                devices, ops // (6 * devices), F=500, B=550, W=450, memory=6 * devices, **LIMITED
            )
            for problem, name in ((chain, "1f1b"), (chain, "zb-h1"), (chain, ""), (vee, "")):
                print(f"| {' | '.join(_row(problem, name))} |", flush=True)


def _row(problem: Problem, name: str) -> list[str]:
    shape = "V" if len(problem.stages) > len(problem.devices) else "chain"
    row = Row(f"{shape}, {len(problem.devices)} devices, {name or 'one greedy policy'}")
    order = row.timed(lambda: _order(problem, name))
    if name:  # a hand-written schedule is timed as it is made
        begin = time.process_time()
        time_order(problem, order)
        row.cells[-1] = f"{float(row.cells[-1]) - (time.process_time() - begin):.2f}"
    schedule = row.timed(lambda: time_order(problem, order))
    wrong = row.timed(lambda: check(problem, schedule))
    assert not wrong, wrong[0]
    row.timed(lambda: time_order(problem, order, "span"))
    row.timed(lambda: measure(problem, schedule))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.json"
        row.timed(lambda: write_schedule(path, problem, schedule))
        read = row.timed(lambda: read_schedule(path, problem))
    assert read.devices == schedule.devices
    return row.cells


def _order(problem: Problem, name: str) -> Order:
    if name:
        return BASELINES[name](problem).order
    return next(list_schedules(problem, chosen=[Policy()])).order


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "?")


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100_000, 1_000_000])
