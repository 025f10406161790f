"""Bounds by all devices of a route at once: docs/proofs/search.md, "Whole routes".

A chain's microbatches are alike and keep their order, and few are in flight where memory is scarce.
All ways to run their F's and backwards are followed op by op, of which only those that no other is
as good as are kept. Devices may be left out, and so may W's: what is left is no harder.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Generator, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

from pipesat.core.arrays import Ints, ints
from pipesat.core.claims import Bound
from pipesat.kernels.arrays import NONE, UNLIMITED
from pipesat.kernels.device_states import NEVER, best, keys
from pipesat.kernels.route_states import ENTERED, Steps, followers, least_shift, loops_ready
from pipesat.problem.ops import Kind, Op
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay
from pipesat.problem.variants import Variant
from pipesat.schedule.schedule import Order
from pipesat.solver.growth.packing import justified
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner
from pipesat.solver.model.pairing import gains, useful_variants

SOURCE = "states of the whole route"
_MOST_IN_FLIGHT: Final = 32
_FIRST_LIMIT, _FIRST_STATES, _LONGER = 5.0, 20_000, 3  # seconds and states; times as many later
_SECONDS = 1e-6  # of a state, as processor time on one core of 2026
_FEW = 100  # states that take as long as what there is to do at each op besides
_PASSES = 24  # to pack a way
_KEPT = 64  # microbatches after which states are remembered
_ALL = 1 << 60


class _Part(NamedTuple):
    """What is asked about: how many devices of the route, and whose W's count."""

    devices: Sequence[int]
    weights: Sequence[int]


class _Found(NamedTuple):
    """The least makespan of a part, its period, if known, whether both are exact, and one way."""

    makespan: int
    rate: Fraction
    exact: bool
    way: list[int]


class _Amounts(NamedTuple):
    """The least that a stage takes: times, memory after F, and more than that in its backward."""

    forward: int
    backward: int
    held: int
    more: int
    weight: int
    after: int


def whole_route_applies(problem: Problem) -> bool:
    """Whether it is one chain of alike microbatches, few of which are in flight, without pairs."""
    one = len(problem.routes) == 1 and problem.chains_only and problem.plain
    if not one or problem.overlap is not None or len(problem.busy) == 1:
        return False
    amounts = [_amounts(problem, stage) for stage in problem.routes[0].stages]
    return all(x.forward and x.backward for x in amounts) and _slots(problem) <= _MOST_IN_FLIGHT


def _variants(problem: Problem, stage: int) -> list[Variant]:
    return useful_variants(problem, stage, 0, gains(problem))


def _devices(problem: Problem) -> list[int]:
    """Devices in the order in which the route comes to them."""
    return [*dict.fromkeys(problem.stages[s].device for s in problem.routes[0].stages)]


def _amounts(problem: Problem, stage: int) -> _Amounts:
    found = _variants(problem, stage)
    split = all(x.split for x in found)
    return _Amounts(
        min(x.forward for x in found),
        min(x.backward for x in found),
        min(x.held for x in found),
        min(x.most - x.held for x in found),
        min(x.weight for x in found) if split else 0,
        min(x.after for x in found) if split else 0,
    )


def _slots(problem: Problem) -> int:
    """How many microbatches may be in flight."""
    (route,) = problem.routes
    held = _amounts(problem, route.stages[0]).held
    slack = problem.devices[problem.stages[route.stages[0]].device].slack
    return route.microbatches if not held or slack is None else min(slack // held, route.microbatches)


def steps_of(problem: Problem, devices: Sequence[int], weights: Sequence[int]) -> Steps:
    """Return the steps of a route on some devices, the first among them, with some stages' W's."""
    stages = problem.routes[0].stages
    amounts = {stage: _amounts(problem, stage) for stage in stages}
    down = [(s, amounts[s].forward, link_delay(problem, s, "F")) for s in stages[:-1]]
    turn = [(stages[-1], amounts[stages[-1]].forward, 0)]
    up = [
        (s, amounts[s].backward, link_delay(problem, before, "B"))
        for before, s in zip(stages[-2::-1], stages[:0:-1], strict=True)
    ]
    way = [*down, *turn, *up, (stages[0], amounts[stages[0]].backward, 0)]
    place = {device: n for n, device in enumerate(devices)}
    kept = [n for n, (s, *_) in enumerate(way) if problem.stages[s].device in place]
    size, forwards = len(kept), len(stages)
    device = ints(place[problem.stages[way[n][0]].device] for n in kept)
    time = ints(way[n][1] for n in kept)
    delay = np.zeros(size, np.int64)
    for step, (n, after) in enumerate(zip(kept, kept[1:], strict=False)):
        delay[step] = way[n][2] + sum(sum(way[left][1:]) for left in range(n + 1, after))
    reach = np.full((size, len(devices)), NEVER)
    for step in range(size)[::-1]:
        if step + 1 < size:
            later = reach[step + 1] < NEVER
            reach[step, later] = reach[step + 1, later] + time[step] + delay[step]
        reach[step, device[step]] = 0
    taken, unsafe = np.zeros((2, size), np.int64)
    held = np.zeros((size, len(devices)), np.int64)
    weight, numbers = np.full(size, NONE), {stage: n for n, stage in enumerate(weights)}
    for step, n in enumerate(kept):
        stage, own = way[n][0], amounts[way[n][0]]
        others = [s for s in stages if problem.stages[s].device == problem.stages[stage].device]
        if step:
            held[step] = held[step - 1]
            last, before = way[kept[step - 1]][0], kept[step - 1]
            held[step, device[step - 1]] += amounts[last].held * (1 if before < forwards else -1)
        if n < forwards:
            taken[step] = own.held
            unsafe[step] = len(others) > 1 or any(amounts[s].more for s in others)
        else:
            taken[step], weight[step] = own.more, numbers.get(stage, NONE)
            unsafe[step] = stage in numbers and own.after > own.held
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


class WholeRoute:
    """Raises the bound of a chain by all ways to run it, or to run a part of it."""

    def __init__(self, problem: Problem, incumbent: Incumbent) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.tried, self.finished = 0, False
        self.limit, self.most = _FIRST_LIMIT, _FIRST_STATES
        stages = problem.routes[0].stages
        devices = _devices(problem)
        weights = [s for s in stages if _amounts(problem, s).weight]
        count = len(devices)
        spread = (n for n in (2, 3, 4, 6, 8, 12, 16, 24) if n < count)
        few = ([devices[n * count // some] for n in range(some)] for some in spread)
        self.parts = [
            _Part(some, [s for s in weights if problem.stages[s].device in some][:1])
            for some in few
        ]
        self.first = len(self.parts)  # all devices, and W's of one stage
        more = [n for n in (2, 4, 8, 16, 32, 64) if n < len(weights)]
        self.parts += [_Part(devices, weights[:n]) for n in (1, *more, len(weights))]
        self.done = NONE  # the largest part of which all is known
        self._asking = self._rounds()
        self._loops_ready = False

    def ready(self) -> bool:
        """Whether it can be asked at once: the first run of all compiles loops for some seconds."""
        self._loops_ready = self._loops_ready or loops_ready(*self._begin(self.parts[0]))
        return self._loops_ready

    def step(self, runner: Runner) -> None:
        """Follow what is asked about for a while."""
        self.runner = runner
        self.finished = next(self._asking, True)

    def _rounds(self) -> Generator[bool, None, None]:
        """Ask about all devices, then about some; what takes too long again with more time."""
        while self.done + 1 < len(self.parts):
            known = self.done
            if self.done < self.first:
                yield from self._settle(self.first)
            while self.done + 1 not in (self.first, len(self.parts)):
                if not (yield from self._settle(self.done + 1)):
                    break
            if self.limit > self.incumbent.clock.left and known == self.done:
                return
            self.limit, self.most = _LONGER * self.limit, _LONGER * self.most

    def _settle(self, number: int) -> Generator[bool, None, bool]:
        """Raise the bound by a part, and return whether all is known of it."""
        self.tried += 1
        found = yield from self._follow(self.parts[number])
        if found is None:
            return False
        self.incumbent.raise_bound(Bound(found.makespan, SOURCE), rate=found.rate)
        if found.exact:
            self.done = max(number, self.done)
            if number >= self.first and not self.incumbent.proven:
                self._offer(self.parts[number], found.way)
        return found.exact

    def _offer(self, part: _Part, way: Sequence[int]) -> None:
        """Offer a way of all F's and backwards, with W's where devices idle or memory ends."""
        order = order_along(self.problem, part.weights, way)
        clock = self.runner.clock
        for found in justified(
            self.problem, order, seed=0, clock=clock, passes=_PASSES, source=SOURCE
        ):
            self.incumbent.offer_timed(found)

    def _begin(self, part: _Part) -> tuple[Steps, Ints]:
        steps, slots = steps_of(self.problem, *part), _slots(self.problem)
        states = np.zeros((1, 1 + len(steps.w_time) + 2 * slots + len(steps.slack)), np.int64)
        states[0, 1 + len(steps.w_time) :][:slots] = NONE
        return steps, states

    def _follow(self, part: _Part) -> Generator[bool, None, _Found | None]:
        """Return what is known of a part when all ways have been followed; ``None`` if too long.

        Where the best states come again, so many microbatches and so much time later, they go on
        to do so, until the last microbatches enter.
        """
        steps, states = self._begin(part)
        m, slots, devices = self.problem.routes[0].microbatches, _slots(self.problem), len(steps.slack)
        each, width = len(steps.time) + len(steps.w_time), states.shape[1] - devices - slots
        spent, rate, exact, n, often = 0.0, Fraction(0), True, 0, 0
        known, seen, ways = dict[int, Ints](), dict[bytes, int](), list[tuple[Any, Any]]()
        circle = range(0)  # of ways that come again
        while n < m:
            begin = self.runner.clock.elapsed
            for _ in range(each):
                made, origin, ran = followers(steps, states, m, self.most)
                self.runner.clock.count((len(made) + _FEW) * _SECONDS)
                if len(made) > self.most or self.runner.clock.over:
                    return None
                order = np.lexsort((made[:, width:].sum(1), keys(made, width)))
                kept = best(made, order, width, _ALL)[0]
                states = made[kept]
                ways.append((origin[kept].astype(np.int32), ran[kept].astype(np.int16)))
            spent += self.runner.clock.elapsed - begin
            late, n = spent > self.limit, n + 1
            yield False
            if often or n + slots >= m:
                if late and not often:
                    return None
                continue
            order = np.lexsort(states[:, :0:-1].T)
            states, ways[-1] = states[order], (ways[-1][0][order], ways[-1][1][order])
            shape = _shape(states, width, devices)
            known[n], again = states, seen.get(shape, n)
            seen[shape] = n
            known.pop(n - _KEPT, None)
            if again in known and again < n:
                shift = int(states[:, width].min() - known[again][:, width].min())
            elif late:
                shifts = {x: least_shift(known[x], states, width, devices) for x in known if x < n}
                again = max(shifts, key=lambda x: shifts[x] / (n - x), default=n)
                shift, exact = shifts.get(again, 0), False
                if shift <= 0:
                    return None
            else:
                continue
            rate, often = Fraction(shift, n - again), (m - slots - 1 - again) // (n - again)
            circle = range(again * each, n * each)
            states = _later(known[again], often * shift, width, devices)
            states[:, ENTERED] += often * (n - again)
            n = again + often * (n - again)
        ends = states[:, width : width + devices].max(1)
        layers = [*range(circle.start), *[*circle] * often, *range(circle.stop, len(ways))]
        way = _way(ways, layers, int(ends.argmin())) if exact else []
        return _Found(int(ends.min()), rate, exact, way)


def order_along(problem: Problem, weights: Sequence[int], way: Sequence[int]) -> Order:
    """Return the order of a way through all steps of a route; see :func:`steps_of`.

    Other W's run where a device idles for as long, or where memory does not suffice otherwise.
    """
    devices, stages = _devices(problem), problem.routes[0].stages
    steps, trip = steps_of(problem, devices, weights), (*stages, *reversed(stages))
    amounts = {stage: _amounts(problem, stage) for stage in stages}
    fused = {x for x in stages if not all(v.split for v in _variants(problem, x))}
    rows: list[list[Op]] = [[] for _ in problem.devices]
    free, held = [0] * len(devices), [0] * len(devices)
    waiting: list[deque[Op]] = [deque() for _ in devices]
    counts, ready = Counter[int](), Counter[int]()

    def run(place: int, op: Op, start: int, time: int, held_more: int) -> None:
        rows[devices[place]].append(op)
        free[place] = max(start, free[place]) + time
        held[place] += held_more

    def weigh(place: int) -> None:
        op = waiting[place].popleft()
        run(place, op, 0, amounts[op.stage].weight, -amounts[op.stage].after)

    for number in way:
        k, size = counts[number], len(trip)
        counts[number] += 1
        if number >= size:
            stage, place = weights[number - size], int(steps.w_device[number - size])
            run(place, Op(stage, "W", k), 0, amounts[stage].weight, -amounts[stage].after)
            continue
        stage, place, own = trip[number], int(steps.device[number]), amounts[trip[number]]
        while waiting[place] and (
            free[place] + amounts[waiting[place][0].stage].weight <= ready[k]
            or held[place] + steps.taken[number] > steps.slack[place]
        ):
            weigh(place)
        if number < len(stages):
            run(place, Op(stage, "F", k), ready[k], own.forward, own.held)
        else:
            kind: Kind = "BW" if stage in fused else "B"
            run(place, Op(stage, kind, k), ready[k], own.backward, own.after - own.held)
            if kind == "B" and stage not in weights:
                waiting[place].append(Op(stage, "W", k))
        ready[k] = free[place] + int(steps.delay[number])
    for place, left in enumerate(waiting):
        while left:
            weigh(place)
    return tuple(map(tuple, rows))


def _way(ways: Sequence[tuple[Any, Any]], layers: Sequence[int], state: int) -> list[int]:
    """Return what ran on the way to a state, where so many layers were passed."""
    found = []
    for layer in reversed(layers):
        origin, ran = ways[layer]
        found.append(int(ran[state]))
        state = int(origin[state])
    return found[::-1]


def _later(states: Ints, time: int, width: int, devices: int) -> Ints:
    """Return states that much later: of slots, those that are taken."""
    slots = states.shape[1] - width - devices
    found = states.copy()
    found[:, width : width + devices] += time
    found[:, width + devices :] += time * (states[:, width - slots : width] != NONE)
    return found


def _shape(states: Ints, width: int, devices: int) -> bytes:
    """Return what is the same for states that are as good as each other, but for their time."""
    shown = _later(states, -int(states[:, width].min()), width, devices)[:, 1:]
    return hashlib.blake2b(shown[np.lexsort(shown.T)].tobytes()).digest()
