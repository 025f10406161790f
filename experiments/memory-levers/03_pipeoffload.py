"""Peaks of PipeOffload's orders (Wan et al., 2025) beside its formulas, from checked schedules.

    python 03_pipeoffload.py

A loop of v chunks per device, F = B = W for a chunk, no delays, a copy leaves nothing, two
channels; k: time of both copies over F + B + W. GIS-H is interleaved 1F1B in groups of p / 2 with a
warm-up of one forward per hop; PO-H is its order with the longer-lived half of the chunks offloaded
(of three, one and every other microbatch of the next). Its peak is the least capacity at which the
order, timed with its copies, takes no longer than GIS-H. "Mean" is what the kept chunks of PO-H
hold on the first device over whole groups in the middle. "Chosen" is the same order with the least
capacity at which our rule for the fewest offloads (what is needed last goes) takes at most half.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from cases import HERE

from pipesat.core.checker import check
from pipesat.core.errors import Deadlock
from pipesat.core.metrics import peak_memory
from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem
from pipesat.heuristics import BASELINES
from pipesat.solver.modes.assign import fewest, in_modes

assert HERE  # cases.py finds the package of this checkout
UNIT = 10  # memory of a chunk
WORK = 60  # F + B + W of a chunk


def loop(p: int, v: int, k: Fraction, capacity: int | None) -> Problem:
    """Return the problem with 4 p microbatches."""
    copy = int(k * WORK / 2)
    stage = {"F": WORK // 3, "B": WORK // 3, "W": WORK // 3, "held_after_F": UNIT}
    offload = {"name": "offload", "offload": {"out": copy, "in": copy, "held": 0}}
    device = {} if capacity is None else {"memory": capacity}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 4 * p,
            "devices": [device] * p,
            "stages": [stage | {"device": s % p, "modes": [offload]} for s in range(p * v)],
        }
    )


def offloaded(problem: Problem, p: int, chunks: Fraction) -> dict[tuple[int, int], int]:
    """Mode of every (stage, microbatch): the first ``chunks`` of each device, of a half one every
    other microbatch."""
    count = problem.routes[0].microbatches
    return {
        (stage, m): 1
        for stage, m in product(range(len(problem.stages)), range(count))
        if stage // p + (1 if m % 2 == 0 else Fraction(1, 2)) <= chunks
    }


def mean_kept(schedule: Schedule, p: int, modes: dict[tuple[int, int], int]) -> float:
    """Mean number of chunks held on the first device, without those that are offloaded."""
    times = {(op.stage, op.microbatch, op.kind): (start, end) for op, start, end in _ops(schedule)}
    begin, end = times[0, p, "F"][0], times[0, 3 * p, "F"][0]  # of 4 p microbatches, groups of p/2
    held = 0
    for (stage, m, kind), (start, _) in times.items():
        if kind == "F" and stage % p == 0 and not modes.get((stage, m)):
            until = times[stage, m, "BW"][1]
            held += max(0, min(until, end) - max(start, begin))
    return held / (end - begin)


def _ops(schedule: Schedule) -> Iterator[tuple[Op, int, int]]:
    for row in schedule.devices:
        for item, start, end in row:
            assert isinstance(item, Op)
            yield item, start, end


def least_capacity(
    p: int, v: int, k: Fraction, order: Order, makespan: int, share: Fraction | None = None
) -> int | None:
    """Return the least capacity at which an order takes no longer, in chunks.

    With a share, microbatches are chosen for each capacity, at most so many of them.
    """

    def fits(capacity: int) -> bool:
        problem = loop(p, v, k, capacity)
        modes = order if share is None else fewest_offloaded(problem, order, share)
        if modes is None:
            return False
        try:
            timed = time_order(problem, modes)
        except Deadlock:
            return False
        return timed.makespan <= makespan and not check(problem, timed)

    low, high = 0, p * v
    if not fits(high * UNIT):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle * UNIT) else (middle, high)
    return high


def fewest_offloaded(problem: Problem, order: Order, share: Fraction) -> Order | None:
    """Return an order with the fewest offloads by our rule; ``None`` if they are more than this."""
    room = [2 * UNIT] * len(problem.devices)  # for a copy out and one back that are under way
    found = fewest(problem, order, lambda *_: 1, room)
    if found is None:
        return None
    forwards = [op for row in found for op in row if isinstance(op, Op) and op.kind == "F"]
    return found if sum(op.mode for op in forwards) <= share * len(forwards) else None


def main() -> None:
    print("| p | v | k | GIS-H | formula | PO-H | formula | mean | chosen |")
    print("|---|---|---|---|---|---|---|---|---|")
    for p, v in product((8, 16), (2, 3, 4)):
        full = p * v  # chunks that 1F1B holds: p microbatches of v
        for k in (Fraction(1), Fraction(14, 10)):
            problem = loop(p, v, k, None)
            base: Schedule = BASELINES["gis-h"](problem)
            assert not check(problem, base)
            gis = max(peak_memory(problem, base)) / UNIT / full
            cells = [str(p), str(v), f"{float(k):g}", f"{gis:.3f}", f"{(v + 1) / (2 * v):.3f}"]
            modes = offloaded(problem, p, Fraction(v, 2))
            half = least_capacity(p, v, k, in_modes(problem, base.order, modes), base.makespan)
            own = least_capacity(p, v, k, base.order, base.makespan, Fraction(1, 2))
            cells.append("longer" if half is None else f"{half / full:.3f}")
            cells.append(f"{(v + 2) / (8 * v):.3f}")
            cells.append(f"{mean_kept(base, p, modes) / full:.3f}")
            cells.append("longer" if own is None else f"{own / full:.3f}")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
