"""How fast: each speed in units of a yardstick that is run before and after it, median of several.

The yardstick is work of the same kind that shares no code with the product, so that figures of
different machines, and of a busy one, compare. All times are of the processor, not of the clock.
"""

from __future__ import annotations

import heapq
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from ortools.sat.python.cp_model import CpSolver

import pipesat
from pipesat.core.problem_file import parse_problem, read_problem
from pipesat.core.timing import time_order
from pipesat.workflows.schedules import schedule_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RECORD = HERE / "speeds.json"
TOLERANCE = 0.05
REPEATS, MORE_REPEATS = 5, 15
"""Measurements of each speed; so many where these say that it has become slower."""

SEARCHED = {
    "chain": "plain/problems/lowcap-6.2B-p4-m8-cap0.75.json",
    "pairs": "beyond/problems/pair-dsv3-vee-p4-m10.json",
    "modes": "beyond/problems/mode-recompute-chain-p4-m12-cap0.5.json",
}
LIMIT = 1.5
"""Deterministic time of each search."""

IMPORTS = "asyncio, csv, decimal, email.message, fractions, http.client, inspect, logging.config"
IMPORTS += ", multiprocessing.pool, sqlite3, tarfile, unittest.mock, xml.dom.minidom, zipfile"


def run(*, record: bool) -> int:
    """Print every speed in yardsticks, and its change; return how many became slower."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found, slower = {}, 0
    for name, (work, yardstick) in _speeds().items():
        before = None if record else known.get(name)
        now, spread = _measured(work, yardstick, REPEATS)
        if before is not None and now < (1 - TOLERANCE) * before:
            now, spread = _measured(work, yardstick, MORE_REPEATS)
        is_slower = before is not None and now < (1 - TOLERANCE) * before
        found[name], slower = float(f"{now:.4g}"), slower + is_slower
        change = "" if before is None else f", {100 * (now / before - 1):+.1f} %"
        change += ": slower" if is_slower else ""
        print(f"{name}: {now:.4g} (spread {100 * spread:.0f} %){change}", flush=True)
    if record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return slower


def _speeds() -> dict[str, tuple[Callable[[], int], Callable[[], int]]]:
    """What is measured, with its yardstick; each returns how much it has done."""
    problem = parse_problem(_chain(devices=10, microbatches=3400))
    order = schedule_of(problem, "1f1b").order
    found = {
        "timing of 100,000 ops": (partial(_timed, problem, order), _python),
        "start-up of --help": (partial(_started, "-m", "pipesat", "--help"), _imported),
    }
    for name, path in SEARCHED.items():
        searched = read_problem(ROOT / "bench" / path)
        found[f"CP-SAT solves, {name}"] = (partial(_windows, searched), _python)
    return found


def _chain(devices: int, microbatches: int) -> dict[str, Any]:
    """Three ops per stage and microbatch: 102,000 of them."""
    stages = [{"device": d, "F": 3 + d % 2, "B": 4, "W": 2 + d % 3} for d in range(devices)]
    return {
        "format": "pipesat.problem/1",
        "devices": [{} for _ in range(devices)],
        "stages": [stage | {"backward": "split"} for stage in stages],
        "microbatches": microbatches,
        "comm": {"default": 1},
    }


def _measured(
    work: Callable[[], int], yardstick: Callable[[], int], repeats: int
) -> tuple[float, float]:
    """Return the median of a speed per yardstick, and half of the middle half's width."""
    found = []
    for _ in range(repeats):
        before, rate = _rate(yardstick), _rate(work)
        found.append(2 * rate / (before + _rate(yardstick)))
    found.sort()
    return median(found), (found[3 * repeats // 4] - found[repeats // 4]) / 2 / median(found)


def _rate(work: Callable[[], int]) -> float:
    """Return how much is done in a second of the processor, in a fork: nothing is remembered."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        begin = _processor()
        done = work()
        os.write(write, f"{done / (_processor() - begin)}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read) as file:
        return float(file.read())


def _processor() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _timed(problem: Any, order: Any) -> int:
    time_order(problem, order, source="golden")
    return 1


def _windows(problem: Any) -> int:
    """Search on one thread by deterministic time, and count CP-SAT's solves."""
    solves, original = [0], CpSolver.solve

    def counted(*words: Any, **named: Any) -> Any:
        solves[0] += 1
        return original(*words, **named)

    CpSolver.solve = counted
    pipesat.solve(problem, time_limit=LIMIT, deterministic=True)
    return solves[0]


def _python() -> int:
    """Loops over small objects and arrays, as timing and searching do."""
    found: dict[tuple[int, str], int] = {}
    heap: list[tuple[int, int]] = []
    for number in range(120_000):
        key = (number * 7919 % 5003, "FBW"[number % 3])
        found[key] = max(found.get(key, 0) + 1, number - len(found))
        heapq.heappush(heap, (found[key], number))
        if len(heap) > 64:
            heapq.heappop(heap)
    array = np.arange(100_000)
    for _ in range(40):
        array = np.maximum.accumulate(array[::-1] + 1)
    return 1


def _started(*words: str) -> int:
    for _ in range(3):
        command = [sys.executable, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return 3


def _imported() -> int:
    return _started("-c", f"import {IMPORTS}")
