"""Ways of all devices of a route at once, op by op: docs/proofs/search.md, "Whole routes".

A chain's microbatches are alike and keep their order, and few are in flight where memory is scarce.
All ways to run their F's and backwards are followed, of which only those that no other is as good
as are kept, or the best of these. Devices may be left out, and so may W's.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pipesat.core.arrays import Ints, ints
from pipesat.kernels.arrays import NONE, UNLIMITED
from pipesat.kernels.device_states import NEVER
from pipesat.kernels.route_states import (
    ENTERED,
    Steps,
    followers,
    keys,
    least_shift,
    loops_ready,
    unbeaten,
    when_empty,
)
from pipesat.problem.ops import Kind, Op
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import link_delay
from pipesat.problem.variants import Variant
from pipesat.schedule.schedule import Objective, Order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.model.pairing import gains, useful_variants

_SECONDS = 1e-6  # of a state, as processor time on one core of 2026
_FEW = 100  # states that take as long as what there is to do at each op besides
_NUMBERS = 12_000_000  # in the states of a step, and in those that are remembered
_LONGEST_WAY = 30_000_000  # states of all steps of which it is known how they came


class LeastAmounts(NamedTuple):
    """The least that a stage takes: times, memory after F, and more than that in its backward.

    ``weight`` and ``after``, time and memory of its W's, are 0 where some backward may be fused.
    """

    forward: int
    backward: int
    held: int
    more: int
    weight: int
    after: int


def _variants(problem: Problem, stage: int) -> list[Variant]:
    return useful_variants(problem, stage, 0, gains(problem))


@once
def amounts_of(problem: Problem, stage: int) -> LeastAmounts:
    """Return the least that a stage takes in any variant."""
    found = _variants(problem, stage)
    split = all(x.split for x in found)
    return LeastAmounts(
        min(x.forward for x in found),
        min(x.backward for x in found),
        min(x.held for x in found),
        min(x.most - x.held for x in found),
        min(x.weight for x in found) if split else 0,
        min(x.after for x in found) if split else 0,
    )


def devices_of(problem: Problem) -> list[int]:
    """Return the devices of the only route in the order in which it comes to them."""
    return [*dict.fromkeys(problem.stages[s].device for s in problem.routes[0].stages)]


def most_in_flight(problem: Problem) -> int:
    """Return how many microbatches may be between their first forward and their last backward."""
    (route,) = problem.routes
    held = amounts_of(problem, route.stages[0]).held
    slack = problem.devices[problem.stages[route.stages[0]].device].slack
    return (
        route.microbatches if not held or slack is None else min(slack // held, route.microbatches)
    )


def steps_of(problem: Problem, devices: Sequence[int], weights: Sequence[int]) -> Steps:
    """Return the steps of a route on some devices, the first among them, with some stages' W's."""
    stages = problem.routes[0].stages
    amounts = {stage: amounts_of(problem, stage) for stage in stages}
    links = [*pairwise(stages)]
    trip = (*stages, *reversed(stages))
    times = [amounts[s].forward for s in stages] + [amounts[s].backward for s in reversed(stages)]
    delays = [link_delay(problem, here, "F") for here, _ in links] + [0]
    delays += [link_delay(problem, here, "B") for here, _ in reversed(links)] + [0]
    place = {device: n for n, device in enumerate(devices)}
    kept = [n for n, stage in enumerate(trip) if problem.stages[stage].device in place]
    size = len(kept)
    device = ints(place[problem.stages[trip[n]].device] for n in kept)
    time, delay = ints(times[n] for n in kept), ints(delays[n] for n in kept)
    for step, (n, after) in enumerate(pairwise(kept)):
        delay[step] += sum(times[n + 1 : after]) + sum(delays[n + 1 : after])
    reach = np.full((size, len(devices)), NEVER)
    for step in range(size)[::-1]:
        if step + 1 < size:
            later = reach[step + 1] < NEVER
            reach[step, later] = reach[step + 1, later] + time[step] + delay[step]
        reach[step, device[step]] = 0
    numbers = {stage: n for n, stage in enumerate(weights)}
    taken, unsafe = np.zeros((2, size), np.int64)
    held, weight = np.zeros((size, len(devices)), np.int64), np.full(size, NONE)
    for step, n in enumerate(kept):
        stage, own = trip[n], amounts[trip[n]]
        beside = [s for s in stages if problem.stages[s].device == problem.stages[stage].device]
        backward = n >= len(stages)
        if step + 1 < size:
            held[step + 1] = held[step]
            held[step + 1, device[step]] += -own.held if backward else own.held
        taken[step] = own.more if backward else own.held
        if backward:
            weight[step] = numbers.get(stage, NONE)
            unsafe[step] = stage in numbers and own.after > own.held
        else:
            unsafe[step] = len(beside) > 1 or any(amounts[s].more for s in beside)
    slacks = [problem.devices[d].slack for d in devices]
    return Steps(
        device=device,
        time=time,
        delay=delay,
        taken=taken,
        unsafe=unsafe,
        held=held,
        reach=reach,
        weight=weight,
        w_device=ints(place[problem.stages[s].device] for s in weights),
        w_time=ints(amounts[s].weight for s in weights),
        w_held=ints(amounts[s].after for s in weights),
        slack=ints(UNLIMITED if x is None else x for x in slacks),
    )


class RouteWays:
    """Ways to run a route on some devices, with some stages' W's, a microbatch's steps at a time.

    ``n`` is after how many microbatches' steps and W's the ``states`` are.
    """

    def __init__(self, problem: Problem, devices: Sequence[int], weights: Sequence[int]) -> None:
        self.problem, self.devices, self.weights = problem, devices, weights
        self.steps = steps_of(problem, devices, weights)
        self.microbatches, self.slots = problem.routes[0].microbatches, most_in_flight(problem)
        self.width = 1 + len(weights) + self.slots
        self.free = slice(self.width, self.width + len(devices))
        self.states = np.zeros((1, self.free.stop + self.slots), np.int64)
        self.states[0, 1 + len(weights) : self.width] = NONE
        self.each = len(self.steps.time) + len(weights)
        self.n = 0
        self.known, self._seen = dict[int, Ints](), dict[bytes, int]()
        self._ran = list[tuple[Any, Any]]()  # which state each came from, and what ran, by op
        self._length = 0  # states in these
        self.spent = 0.0  # seconds of a processor, about, whatever else it does meanwhile
        self._circle, self._often = range(0), 0  # of these ops, and how often it comes
        self._now: int | None = None  # the state that ends it, if not each

    def ready(self) -> bool:
        """Whether all loops are compiled; those that are not are, from now on."""
        return loops_ready(self.steps, self.states)

    @property
    def done(self) -> bool:
        """Whether all microbatches have run."""
        return self.n >= self.microbatches

    @property
    def even(self) -> bool:
        """Whether microbatches may still come again and again: none of the last has entered."""
        return not self._often and int(self.states[:, ENTERED].max()) < self.microbatches

    def time_of(self, microbatches: int) -> float:
        """Return about how long so many more take with as many states."""
        return _SECONDS * len(self.states) * self.each * microbatches

    def advance(self, clock: Clock, end: Clock, most: int, *, beam: bool) -> bool:
        """Let as much run as a microbatch has, with at most so many states, or the best of them.

        ``clock`` counts. ``False`` if there are more, or none. Once ``end`` is over, which is that
        of a lane's job, all is as it was: ``n``, too.
        """
        begin, before = len(self._ran), (self.states, self._length)
        at_most = _NUMBERS // self.states.shape[1]
        at_most = at_most if beam else min(4 * most, at_most)
        for _ in range(self.each):
            made, origin, ran = followers(self.steps, self.states, self.microbatches, at_most)
            taken = (len(made) + _FEW) * _SECONDS
            clock.count(taken)
            self.spent += taken
            if not 0 < len(made) <= at_most or self._length > _LONGEST_WAY:
                return False
            if end.over:
                del self._ran[begin:]
                self.states, self._length = before
                return True
            times = made[:, self.width :]
            order = np.lexsort((times.sum(1), keys(made, self.width)))
            kept = unbeaten(made, order, self.width)
            if beam and self.steps.unsafe.any():  # what no longer fits is the end of none of them
                kept = kept[when_empty(self.steps, made[kept]) < NEVER]
            if len(kept) > most:
                if not beam:
                    return False
                ends = made[kept, self.free]
                kept = kept[np.lexsort((ends.sum(1), ends.max(1)))[:most]]
            self.states = made[kept]
            self._ran.append((origin[kept].astype(np.int32), ran[kept].astype(np.int16)))
            self._length += len(kept)
        self.n += 1
        self._drop_slow()
        if self.even:
            order = np.lexsort(self.states[:, :0:-1].T)
            self.states = self.states[order]
            self._ran[-1] = tuple(x[order] for x in self._ran[-1])
            self.known[self.n] = self.states
            while sum(map(len, self.known.values())) * self.states.shape[1] > _NUMBERS:
                del self.known[min(self.known)]
        return True

    def _drop_slow(self) -> None:
        """Drop states in which nothing can start before others have run all that has begun there.

        By then at least as many microbatches may have run as have entered; then nothing is held.
        """
        entered, empty = self.states[:, ENTERED], when_empty(self.steps, self.states)
        low = int(entered.min())
        least = np.full(int(entered.max()) - low + 1, NEVER)
        np.minimum.at(least, entered - low, empty)
        least = np.minimum.accumulate(least[::-1])[::-1]
        kept = np.flatnonzero(self.states[:, self.free].min(1) <= least[entered - low])
        self.states, (origin, ran) = self.states[kept], self._ran[-1]
        self._ran[-1] = origin[kept], ran[kept]

    def again(self) -> tuple[int, int] | None:
        """Return when states were the same but for their time, and by how much they are later."""
        moved = self._later(self.states, -int(self.states[:, self.width].min()))[:, 1:]
        shape = hashlib.blake2b(moved[np.lexsort(moved.T)].tobytes()).digest()
        before = self._seen.get(shape)
        self._seen[shape] = self.n
        if before not in self.known:
            return None
        first = self.known[before][:, self.width].min()
        return before, int(self.states[:, self.width].min() - first)

    def no_better(self) -> tuple[int, int] | None:
        """Return since when states are no better than some that were, but later, and by how much.

        Of such times not long ago, that by which they are later by the most per microbatch;
        ``None``: none.
        """
        shifts = {
            before: least_shift(states, self.states, self.width, len(self.devices))
            for before, states in self.known.items()
            if self.n - 2 * self.slots <= before < self.n
        }
        before = max(shifts, key=lambda x: Fraction(shifts[x], self.n - x), default=self.n)
        return (before, shifts[before]) if shifts.get(before, 0) > 0 else None

    def repeat(self, before: int, by: int, then: int | None = None, now: int = 0) -> bool:
        """Let what has run since ``before`` run as often as there are microbatches for it.

        Of all states, or from one of then to one of ``now``. ``False`` if there are too few.
        """
        states, together = self.known[before], self.n - before
        if then is not None:
            states, self._now = states[then : then + 1], now
        left = self.microbatches - 1 - int(states[:, ENTERED].max())
        self._often = left // together
        if self._often:
            self._circle = range(before * self.each, self.n * self.each)
            self.states = self._later(states, self._often * by)
            self.states[:, ENTERED] += self._often * together
            self.n = before + self._often * together
        return self._often > 0

    def round_trip(self) -> tuple[int, int, int, int] | None:
        """Return since when a way may come again, by how much later, and its states then and now.

        Its counts are the same as before; what is the least per microbatch counts.
        """
        found = list[tuple[int, int, int, int]]()
        state = np.arange(len(self.states))
        for layer in range(self.n * self.each - 1, -1, -1):
            state = self._ran[layer][0][state]
            before, rest = divmod(layer, self.each)
            if rest or before not in self.known:
                continue
            states = self.known[before][state]
            alike = (states[:, 1 : self.width] == self.states[:, 1 : self.width]).all(1)
            times = (self.states[:, self.width :] - states[:, self.width :]).max(1)
            now = int(np.where(alike, times, NEVER).argmin())
            if alike[now]:
                found.append((before, int(times[now]), int(state[now]), now))
        return min(found, key=lambda x: Fraction(x[1], self.n - x[0]), default=None)

    def _later(self, states: Ints, time: int) -> Ints:
        found = states.copy()
        found[:, self.free] += time
        taken = states[:, 1 + len(self.weights) : self.width] != NONE
        found[:, self.free.stop :] += time * taken
        return found

    def ends(self, objective: Objective) -> Ints:
        """Return the makespan by state; for the span, when the first device has ended.

        It begins first, so its own window ends then.
        """
        return (
            self.states[:, self.free].max(1)
            if objective == "makespan"
            else self.states[:, self.width]
        )

    def best_way(self, objective: Objective) -> list[int]:
        """Return what runs, one op after the other, in a way that ends first."""
        layers = [
            *range(self._circle.start),
            *[*self._circle] * self._often,
            *range(self._circle.stop, len(self._ran)),
        ]
        state, found = int(self.ends(objective).argmin()), []
        for layer in reversed(layers):
            origin, ran = self._ran[layer]
            if self._now is not None and layer == self._circle.stop - 1:
                state = self._now
            found.append(int(ran[state]))
            state = int(origin[state])
        return found[::-1]

    def order(self, objective: Objective) -> Order:
        """Return the order of a way through all devices that ends first.

        W's that do not count run where a device idles for as long, or where memory does not suffice
        otherwise.
        """
        steps, stages = self.steps, self.problem.routes[0].stages
        trip = (*stages, *reversed(stages))
        amounts = {stage: amounts_of(self.problem, stage) for stage in stages}
        fused = {x for x in stages if not all(v.split for v in _variants(self.problem, x))}
        rows: list[list[Op]] = [[] for _ in self.problem.devices]
        free, held = [0] * len(self.devices), [0] * len(self.devices)
        waiting: list[deque[Op]] = [deque() for _ in self.devices]
        counts, ready = Counter[int](), Counter[int]()

        def run(place: int, op: Op, start: int, time: int, held_more: int) -> None:
            rows[self.devices[place]].append(op)
            free[place] = max(start, free[place]) + time
            held[place] += held_more

        def weigh(place: int, op: Op) -> None:
            run(place, op, 0, amounts[op.stage].weight, -amounts[op.stage].after)

        for number in self.best_way(objective):
            k, size = counts[number], len(trip)
            counts[number] += 1
            if number >= size:
                weigh(int(steps.w_device[number - size]), Op(self.weights[number - size], "W", k))
                continue
            stage, place, own = trip[number], int(steps.device[number]), amounts[trip[number]]
            while waiting[place] and (
                free[place] + amounts[waiting[place][0].stage].weight <= ready[k]
                or held[place] + steps.taken[number] > steps.slack[place]
            ):
                weigh(place, waiting[place].popleft())
            if number < len(stages):
                run(place, Op(stage, "F", k), ready[k], own.forward, own.held)
            else:
                kind: Kind = "BW" if stage in fused else "B"
                run(place, Op(stage, kind, k), ready[k], own.backward, own.after - own.held)
                if kind == "B" and stage not in self.weights:
                    waiting[place].append(Op(stage, "W", k))
            ready[k] = free[place] + int(steps.delay[number])
        for place, left in enumerate(waiting):
            for op in left:
                weigh(place, op)
        return tuple(map(tuple, rows))
