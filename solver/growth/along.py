"""Modes along one order: those in which it fits into memory, and takes the least time found.

As long as memory does not suffice, a microbatch gives way for which least time is lost per memory:
what takes longer on one device costs nothing where others wait meanwhile. Then modes are annealed,
mostly one for another. Copies are taken as if they changed memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, product

import numpy as np

from pipesat.core.arrays import ints
from pipesat.core.grouping import firsts
from pipesat.kernels.arrays import NONE
from pipesat.kernels.modes import Along, anneal_along, excess_along, give_way, length_along
from pipesat.kernels.timing import sequenced
from pipesat.problem.ops import Item, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, memory_in_order
from pipesat.schedule.arrays_of import coded
from pipesat.schedule.schedule import Order
from pipesat.solver.growth.assign import in_modes
from pipesat.solver.lanes.clock import Clock

_HEAT = 0.001  # of the makespan: what is taken with a chance of 1/e at the beginning
_STEPS, _QUICK = 500, 16  # between two looks at the clock; so much less than a pass each


class ModesAlong:
    """An order without modes that can run, whose modes may change."""

    def __init__(self, problem: Problem, order: Order) -> None:
        self.problem, self.order = problem, order
        arrays, codes = coded(problem, order)
        stage_of, counts = arrays.stage_of, np.array([len(x.modes) for x in problem.stages]) + 1
        self.keys = [(x, n) for x, count in enumerate(problem.microbatches) for n in range(count)]
        found, items = sequenced(arrays, codes), [*chain.from_iterable(order)]
        last, most = len(self.keys), max(counts)
        each = np.arange(last) if problem.mode_choice == "microbatch" else stage_of
        own = np.append(np.where(counts[stage_of] > 1, each, last), last)
        _, first, group = np.unique(own, return_index=True, return_inverse=True)
        stage = stage_of[first[:-1]]
        looks = [tuple((*op[:2], problem.class_of(*op[::2])) for op in members(x)) for x in items]
        known = firsts(zip(looks, items, strict=True))
        rows = {look: place for place, look in enumerate(known)}
        tables = np.array([[*_amounts(problem, item, most)] for item in known.values()])
        tables = np.moveaxis(tables.reshape(-1, most, most, 3), 3, 0).copy()
        copies = np.array(
            [[_copies(problem, *key, mode) for mode in range(most)] for key in self.keys]
        )
        cells = np.stack([codes.first, codes.second], axis=1)[found.item]
        self.along = Along(
            sequence=found,
            begin=codes.begin,
            row=np.argsort(found.item),
            slack=arrays.slack,
            channels=ints(device.copy_channels for device in problem.devices),
            cell=np.where(cells < 0, NONE, cells >> arrays.shift),
            kind=np.where(cells < 0, NONE, cells & 3),
            look=ints(rows[look] for look in looks)[found.item],
            time=tables[0],
            taken=tables[1],
            net=tables[2],
            out=copies[..., 0].copy(),
            back=copies[..., 1].copy(),
            group=group[:-1],
            device=np.append(arrays.device[stage], NONE),
            modes=np.append(counts[stage], 1),
        )
        self.chosen = np.zeros(len(first), np.int64)

    @property
    def length(self) -> int:
        """Makespan in the modes chosen."""
        return int(length_along(self.along, self.chosen))

    def fitted(self, clock: Clock) -> bool:
        """Choose modes until all fits; whether it does."""
        for device in range(len(self.along.slack)):
            while excess_along(self.along, self.chosen, device):
                tried = give_way(self.along, self.chosen, device)
                clock.count_ops((tried + 1) * len(self.along.look) // _QUICK)
                if not tried or clock.over:
                    return False
        return True

    def annealed(self, clock: Clock, seed: int) -> Order:
        """Anneal the modes until the clock is over; return the order in the best ones."""
        along, best, here = self.along, self.chosen, self.chosen.copy()
        known, state = ints([self.length] * 2), ints([seed + 1])
        while not clock.over:
            heat = _HEAT * known[1] * clock.left / clock.limit
            anneal_along(along, here, best, known, _STEPS, heat, state)
            clock.count_ops(_STEPS * len(along.look) // _QUICK)
        modes = dict(zip(self.keys, best[along.group].tolist(), strict=True))
        return in_modes(self.problem, self.order, modes)


def _copies(problem: Problem, stage: int, number: int, mode: int) -> tuple[int, int]:
    """Times out and back."""
    there = mode in problem.modes_of(stage)
    copies = problem.amounts(stage, number, mode).offload if there else None
    return (copies.time_out, copies.time_in) if copies else (0, 0)


def _amounts(problem: Problem, item: Item, modes: int) -> Iterator[tuple[int, int, int]]:
    """What an item takes in time, in memory, and holds more after it, in all modes of its ops."""
    keys = [op[::2] for op in members(item)]
    for chosen in product(range(modes), repeat=2):
        both = dict(zip(keys, chosen, strict=False))
        if any(mode not in problem.modes_of(stage) for (stage, _), mode in both.items()):
            yield 0, 0, 0
            continue
        (own,) = in_modes(problem, ((item,),), both)
        changes = [memory_in_order(problem, one) for one in own]
        held = [*accumulate((change.net for change in changes), initial=0)]
        most = max((h + c.at_start for h, c in zip(held, changes, strict=False)), default=0)
        yield sum(duration(problem, one) for one in own), most, held[-1]
