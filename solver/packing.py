"""Packing: let ops of an order run earlier where a device idles and memory stays safe.

The order is the guide. A device that falls idle may take any op whose input is there; it prefers
the one that comes first in the guide, and takes a later one only if, with that op moved to the
front, its remaining row in guide order still fits into memory. So the invariant holds that "what
was done, then the rest in guide order" is a valid order: packing cannot deadlock and cannot exceed
a capacity, and if nothing can be moved the result is the guide itself.

Packing the time-reversed order moves ops later instead. Alternating the two ("justification", as it
is called for project schedules: Wiest 1964; Li and Willis 1992) shortens warm-up and cool-down by
turns. It works on any valid order, be it unrolled from a repetend or made by a heuristic. Passes
differ in patience and in small disturbances of the guide, drawn by chance. After some passes
without improvement the walk returns to the best order.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipesat.core.event_engine import EventEngine
from pipesat.core.ops import PHASE_OF, Item, members
from pipesat.core.problem import Problem
from pipesat.core.rules import memory_in_order
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import linearize, time_order
from pipesat.solver.run.clock import Clock


@dataclass(frozen=True)
class Jobs:
    """Items as numbers. Lists are indexed by item, ``rows`` and ``room`` by device.

    ``inputs`` and ``outputs`` have ``(item, delay)``. ``taken`` is memory that an item takes at its
    start, ``net`` what it leaves changed after its end. Items of one ``chain`` keep their order.
    """

    rows: list[list[int]]
    room: list[int | None]
    duration: list[int]
    inputs: list[list[tuple[int, int]]]
    outputs: list[list[tuple[int, int]]]
    taken: list[int]
    net: list[int]
    chain: list[int]
    device: list[int]

    def reversed(self) -> Jobs:
        """Same items with time running backwards: what was freed at an end is taken at a start."""
        return Jobs(
            rows=[row[::-1] for row in self.rows],
            room=self.room,
            duration=self.duration,
            inputs=self.outputs,
            outputs=self.inputs,
            taken=[t - n for t, n in zip(self.taken, self.net, strict=True)],
            net=[-n for n in self.net],
            chain=self.chain,
            device=self.device,
        )


def jobs_of(problem: Problem, order: Order) -> tuple[Jobs, list[Item]]:
    """Translate an order; the items come in the numbers' order."""
    sequence = linearize(problem, order)
    count = len(sequence.item)
    outputs: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    rows: list[list[int]] = [[] for _ in problem.devices]
    taken, net, chain = [], [], []
    for number, item in enumerate(sequence.item):
        for source, delay in sequence.inputs[number]:
            outputs[source].append((number, delay))
        rows[sequence.device[number]].append(number)
        change = memory_in_order(problem, item)
        taken.append(change.at_start)
        net.append(change.net)
        op = members(item)[-1]
        chain.append(3 * op.stage + "FBW".index(PHASE_OF[op.kind]))
    jobs = Jobs(
        rows=rows,
        room=[device.room for device in problem.devices],
        duration=sequence.duration,
        inputs=[list(pairs) for pairs in sequence.inputs],
        outputs=outputs,
        taken=taken,
        net=net,
        chain=chain,
        device=sequence.device,
    )
    return jobs, sequence.item


@dataclass(frozen=True)
class Packed:
    """New rows, and when everything is done if each item starts as soon as it can."""

    rows: list[list[int]]
    makespan: int


def pack(
    jobs: Jobs,
    patience: float,
    rank: Sequence[float] | None = None,
    give_up: Callable[[], bool] = lambda: False,
) -> Packed | None:
    """Run the items greedily in guide order; ``None`` if told to give up.

    Parameters
    ----------
    patience
        How long a device idles for a preferred item that is known to arrive, in parts of the time
        that the other item would take.
    rank
        Per item, what to prefer (least first) instead of the place in the guide. Safety is judged
        by the guide in any case.
    """
    packing = _Packing(jobs, patience, rank)
    return Packed(packing.rows, max(packing.busy_until)) if packing.run(give_up) else None


class _Packing(EventEngine[int]):
    """One pass. Lists are indexed by item or by device; queues are stacks, next item last."""

    def __init__(self, jobs: Jobs, patience: float, rank: Sequence[float] | None) -> None:
        super().__init__(len(jobs.rows))
        self.jobs, self.patience = jobs, patience
        count = len(jobs.duration)
        self.waits = [len(inputs) for inputs in jobs.inputs]
        self.arrival = [0] * count
        self.place = [0] * count
        self.done = [False] * count
        self.first = [0] * len(jobs.rows)
        self.held = [0] * len(jobs.rows)
        self.queue_of: dict[int, list[int]] = {}
        self.queues: list[list[list[int]]] = []
        for row in jobs.rows:
            chains: dict[int, list[int]] = defaultdict(list)
            for place in reversed(range(len(row))):
                item = row[place]
                self.place[item] = place
                self.queue_of[item] = queue = chains[jobs.chain[item]]
                queue.append(item)
            self.queues.append(list(chains.values()))
        self.rank: Sequence[float] = self.place if rank is None else rank

    def step(self, device: int, now: int) -> bool:
        """Start the earliest item of the guide that is there and safe; ``False`` to wait."""
        ready: list[tuple[float, int]] = []
        coming: list[tuple[float, int]] = []
        for queue in self.queues[device]:
            if queue and not self.waits[queue[-1]]:
                item = queue[-1]
                (ready if self.arrival[item] <= now else coming).append((self.rank[item], item))
        ready.sort()
        for rank, item in ready:
            if not self._is_safe(item, device):
                continue
            limit = now + self.patience * self.jobs.duration[item]
            if any(r < rank and self.arrival[other] < limit for r, other in coming):
                return False
            self._start(item, device, now)
            return True
        return False

    def _is_safe(self, item: int, device: int) -> bool:
        """Whether the rest of the row, in guide order, fits after this item; its first one does."""
        room = self.jobs.room[device]
        if room is None or self.place[item] == self.first[device]:
            return True
        jobs, held = self.jobs, self.held[device]
        if held + jobs.taken[item] > room:
            return False
        extra = jobs.net[item]
        if extra <= 0:
            return True
        row = jobs.rows[device]
        limit = room - extra
        for place in range(self.first[device], self.place[item]):
            other = row[place]
            if not self.done[other]:
                if held + jobs.taken[other] > limit:
                    return False
                held += jobs.net[other]
        return True

    def _start(self, item: int, device: int, now: int) -> None:
        jobs = self.jobs
        end = now + jobs.duration[item]
        self.held[device] += jobs.net[item]
        self.done[item] = True
        row = jobs.rows[device]
        first = self.first[device]
        while first < len(row) and self.done[row[first]]:
            first += 1
        self.first[device] = first
        self.queue_of[item].pop()
        self.occupy(device, item, end)
        for other, delay in jobs.outputs[item]:
            self.waits[other] -= 1
            self.arrival[other] = max(self.arrival[other], end + delay)
            if not self.waits[other]:
                self.wake(jobs.device[other], self.arrival[other])


_PATIENCES = (0.5, 0.0, 0.25, 0.75, 1.0)
_DISTURBANCES = (0.0, 0.0, 1.5, 4.0)  # places of the guide that an item may seem away from its own
_STALE = 12  # passes without improvement before the walk returns to the best order
_FIRST_PASSES = 6  # without disturbance: turn by turn, these improve most


def justified(
    problem: Problem,
    order: Order,
    *,
    seed: int,
    clock: Clock,
    counted: bool = True,
    passes: int | None = None,
    source: str = "",
) -> Iterator[Schedule]:
    """Yield schedules, timed as early as possible, each of smaller makespan than all before.

    The first is the given order's own. Ends after so many passes, or when the clock is over.
    With ``counted``, a deterministic clock counts them.
    """
    best = time_order(problem, order, source=source)
    yield best
    walk = Walk(*jobs_of(problem, order), random.Random(seed))  # noqa: S311 (not secrecy)
    least, kept, done, stale = math.inf, walk.state, 0, 0
    while (passes is None or done < passes) and not clock.over:
        makespan = walk.step(lambda: clock.over)
        if counted:
            clock.count_ops(len(walk.items))
        done += 1
        if makespan is None:
            continue
        stale += 1
        if makespan < least:
            least, kept, stale = makespan, walk.state, 0
            if makespan < best.makespan:
                best = time_order(problem, walk.order, source=source)
                yield best
        elif stale > _STALE:
            walk.state, stale = kept, 0


class Walk:
    """Passes over an order, forward and backward in turn; the first ``early`` are not disturbed.

    ``state`` is what the last pass left: its jobs, and whether time ran forward in them.
    """

    def __init__(
        self, jobs: Jobs, items: list[Item], chance: random.Random, early: int = _FIRST_PASSES
    ) -> None:
        self.items, self.chance, self.early = items, chance, early
        self.state, self.steps = (jobs.reversed(), False), 0

    def step(self, give_up: Callable[[], bool] = lambda: False) -> int | None:
        """Run one pass and return its makespan; ``None`` if told to give up."""
        patience, disturbance = _PATIENCES[0], 0.0
        if self.steps >= self.early:
            patience = self.chance.choice(_PATIENCES)
            disturbance = self.chance.choice(_DISTURBANCES)
        before, forward = self.state
        jobs = before.reversed()
        rank = disturbed(jobs, disturbance, self.chance) if disturbance else None
        packed = pack(jobs, patience, rank, give_up)
        if packed is None:
            return None
        self.steps += 1
        self.state = replace(jobs, rows=packed.rows), not forward
        return packed.makespan

    @property
    def order(self) -> Order:
        """The order that the last pass left."""
        jobs, forward = self.state
        rows = jobs.rows if forward else [row[::-1] for row in jobs.rows]
        return tuple(tuple(self.items[item] for item in row) for row in rows)


def disturbed(jobs: Jobs, most: float, chance: random.Random) -> list[float]:
    """Places of the guide, each moved back by up to ``most``."""
    rank = [0.0] * len(jobs.duration)
    for row in jobs.rows:
        for place, item in enumerate(row):
            rank[item] = place + most * chance.random()
    return rank
