"""Orders with modes to start from: guides made without modes, each brought into memory and packed.

The packer (:mod:`pipesat.solver.growth.packing`) counts memory op by op. An offloaded microbatch
holds, between its F and its backward, what it holds between its copies; ``spare`` is memory that is
left for copies under way. What comes out is timed with its copies, which shows what they cost. How
short a start is says little of how short it gets, so many are packed a little, and the shorter half
of them goes on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise, product
from typing import NamedTuple, TypeAlias

import numpy as np

from pipesat.core.grouping import firsts
from pipesat.kernels.packing import Jobs
from pipesat.kernels.timing import makespan_of
from pipesat.problem.ops import Item, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.variants import Key
from pipesat.schedule.arrays_of import coded
from pipesat.schedule.schedule import Order, Schedule
from pipesat.solver.growth.assign import fewest, in_modes_of_stages
from pipesat.solver.growth.packing import Walk, jobs_of


class Start(NamedTuple):
    """An order in modes, and in words where it comes from."""

    order: Order
    source: str


def modes_named(problem: Problem, name: str) -> list[int]:
    """By stage the number of its mode of this name; 0 if it has none."""
    names = ([None, *(mode.name for mode in stage.modes)] for stage in problem.stages)
    return [own.index(name) if name in own else 0 for own in names]


_ALL = (1, 1)
_PARTS = (_ALL, (3, 4), (1, 2))  # of the microbatches of a stage, spread evenly
_SPARES = (1.0, 0.0, 0.5, 2.0, 1.5)  # of the largest held_after_F of a device


def orders_from(
    problem: Problem, guides: Iterable[Schedule], worth: Callable[[int], bool] = lambda _: True
) -> Iterator[Start]:
    """Yield orders in modes along guides, which may exceed memory; they need not fit either.

    Of each guide, and of it with every W right after its B: every single mode for all; the fewest
    that fit in each mode, with more or less memory left for copies. Where a stage has one mode for
    all, the best choice per stage instead. ``worth`` is asked whether one
    that takes so long without modes, as if memory were no matter, should be tried at all.
    """
    known = by_length(problem, guides)
    for make in _makings(problem):
        for length, guide in known:
            if worth(length) and (found := make(guide)) is not None:
                yield found


def by_length(problem: Problem, guides: Iterable[Schedule]) -> list[tuple[int, Start]]:
    """Guides, and each with every W right after its B; by length, as if memory were no matter."""
    both = ((Start(x.order, x.source), _weights_at_once(problem, x)) for x in guides)
    known = firsts(chain.from_iterable(both))
    starts = [(makespan_of(*coded(problem, order)), Start(order, known[order])) for order in known]
    return sorted(starts, key=lambda start: start[0])


_Making: TypeAlias = Callable[[Start], Start | None]


def _makings(problem: Problem) -> Iterator[_Making]:
    """Yield what may be made of a guide, the usually best first."""
    names = problem.mode_names
    if problem.mode_choice == "stage":
        yield from (partial(_per_stage, problem, name, None, _ALL) for name in names)
        yield from (partial(_all_in, problem, name) for name in names)
        for also, name in product(range(len(problem.stages)), names):
            yield partial(_per_stage, problem, name, also, _ALL)
        return
    yield from (partial(_per_stage, problem, name, None, part) for name in names for part in _PARTS)
    for share, weights_first in product(_SPARES, (True, False)):
        spare = [int(share * most) for most in largest_held(problem)]
        for name in names:
            yield partial(_fewest_in, problem, name, spare, weights_first)
        if weights_first and share == _SPARES[0]:
            yield from (partial(_all_in, problem, name) for name in names)


def _all_in(problem: Problem, name: str, guide: Start) -> Start:
    order = in_modes_of_stages(problem, guide.order, modes_named(problem, name))
    return Start(order, f"{guide.source}, all {name}")


def _fewest_in(
    problem: Problem,
    name: str,
    spare: Sequence[int],
    weights_first: bool,
    guide: Start,
) -> Start | None:
    order = fewest(
        problem, guide.order, modes_named(problem, name), spare, weights_first=weights_first
    )
    return None if order is None else Start(order, f"{guide.source}, fewest {name}")


def _weights_at_once(problem: Problem, guide: Schedule) -> Start:
    """Run every W right after its B, and split a BW where that costs nothing."""
    rows: list[tuple[Item, ...]] = []
    for row in guide.order:
        new: list[Item] = []
        for item in row:
            if isinstance(item, Pair):
                new.append(item)
                continue
            stage = problem.amounts(*item[::2])
            if item.kind == "F" or (item.kind == "BW" and stage.fusing_may_pay):
                new.append(item)
            elif item.kind != "W":
                new += [item._replace(kind="B"), item._replace(kind="W")]
        rows.append(tuple(new))
    return Start(tuple(rows), f"{guide.source}, W's at once")


def largest_held(problem: Problem) -> list[int]:
    """Largest held_after_F of each device."""
    return [
        max((problem.stages[s].held_after_F for s in stages), default=0)
        for stages in problem.stages_on
    ]


def _in_part(problem: Problem, stage: int, name: str, part: tuple[int, int]) -> dict[Key, int]:
    """Put ``part`` of a stage's microbatches into a mode, evenly spread."""
    some, of = part
    return {
        (stage, m): modes_named(problem, name)[stage]
        for m in range(problem.microbatches[stage])
        if m * some // of != (m + 1) * some // of
    }


def _per_stage(
    problem: Problem, name: str, also: int | None, part: tuple[int, int], guide: Start
) -> Start | None:
    """Put the fewest stages into a mode: those with no slack on their device for keep alone.

    A device whose row does not fit puts its stages, or ``part`` of their microbatches, into a mode
    one after the other, first those of the route's beginning, whose microbatches stay longest.
    ``also`` is one that is in the mode in any case, so that others may be more in step with it.
    """
    chosen = {} if also is None else _in_part(problem, also, name, part)
    for device, row in enumerate(guide.order):
        alone: Order = tuple(row if d == device else () for d in range(len(guide.order)))
        for stage in (None, *problem.stages_on[device]):
            if stage is not None:
                chosen |= _in_part(problem, stage, name, part)
            if fewest(problem, alone, fixed=chosen) is not None:
                break
    order = fewest(problem, guide.order, fixed=chosen)
    return None if order is None else Start(order, f"{guide.source}, stages {name}")


_EARLY = 2  # passes without disturbance
_SPARES_OF_PACKED = (1.0, 0.0)  # activations of memory left for copies
_PASSES, _MOST_PASSES = 2, 16  # per order in the first round, and in the last


def _shortest(
    walk: Walk, passes: int, offer: Callable[[Order], int | None], over: Callable[[], bool]
) -> float:
    """Run some passes, offer what comes out, and return the least of their lengths."""
    least = math.inf
    for _ in range(passes):
        if over():
            break
        walk.step()
        length = offer(walk.order)
        least = least if length is None else min(least, length)
    return least


def pack_by_turns(
    problem: Problem,
    orders: Iterable[Order],
    rng: random.Random,
    offer: Callable[[Order], int | None],
    over: Callable[[], bool],
) -> None:
    """Pack some orders round by round, the shorter half of them with twice as many passes.

    ``offer`` takes an order that comes out and returns how long it is, ``None`` if it is not valid.
    """
    spares = [[int(share * most) for most in largest_held(problem)] for share in _SPARES_OF_PACKED]
    lines = [packer(problem, order, spare, rng) for order, spare in product(orders, spares)]
    passes = _PASSES
    while lines and passes <= _MOST_PASSES and not over():
        lengths = [_shortest(walk, passes, offer, over) for walk in lines]
        ranked = sorted(range(len(lines)), key=lengths.__getitem__)
        lines = [lines[number] for number in ranked[: len(lines) // 2]]
        passes *= 2


def packer(problem: Problem, order: Order, spare: Sequence[int], rng: random.Random) -> Walk:
    """Passes over one order in modes."""
    jobs, items = jobs_of(problem, order)
    return Walk(_with_spare(jobs, spare), items, rng, _EARLY)


def _with_spare(jobs: Jobs, spare: Sequence[int]) -> Jobs:
    """Leave memory for copies under way, where the order allows that."""
    held = np.cumsum(jobs.net) - jobs.net
    slacks = jobs.slack.copy()
    for device, (begin, end) in enumerate(pairwise(jobs.begin.tolist())):
        before = held[begin : begin + 1]  # none where the last devices run nothing
        most = max(held[begin:end] + jobs.taken[begin:end] - before, default=0)
        slacks[device] = min(slacks[device], max(most, slacks[device] - spare[device]))
    return jobs._replace(slack=slacks)
