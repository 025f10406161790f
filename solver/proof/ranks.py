"""Bounds by the devices of routes, each with its stages, that know their neighbours' ranks.

Every device is followed state by state (:mod:`pipesat.kernels.device_states`), from the beginning
and from the end, in all schedules of at most some length. What that says of the start and end of
the k-th F and of the k-th backward of a stage is passed on to the stages beside it. If a device has
no schedule left, there is none (docs/proofs/search.md, "Ranks"). If all have, CP-SAT is asked for
one in the windows that are left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, combinations_with_replacement, count, cycle, product
from math import prod
from typing import Final, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.core.arrays import Ints, ints
from pipesat.core.claims import Bound
from pipesat.kernels.arrays import NONE, UNLIMITED
from pipesat.kernels.compiled import ready
from pipesat.kernels.device_states import (
    COPY,
    NEVER,
    RESOURCES,
    Limits,
    Parts,
    Pool,
    Runnable,
    followers,
    table_of,
)
from pipesat.problem.ops import Op, Phase
from pipesat.problem.problem import Problem, once
from pipesat.problem.rules import link_delay, time_together
from pipesat.problem.variants import Variant
from pipesat.solver.lanes.clock import CONSTRAINTS_PER_SECOND
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner, Share
from pipesat.solver.model.left_out import lags_before, tail_after
from pipesat.solver.model.memory import staircase_applies
from pipesat.solver.model.model import build_model, model_size
from pipesat.solver.model.pairing import gains, useful_variants
from pipesat.solver.model.variables import Variables
from pipesat.solver.proof.short_runs import is_long

SOURCE = "states of all devices, by rank"
MODEL = "CP-SAT in the windows of all ranks"
_FIRST_LIMIT, _LONGER = 1.0, 3.0  # seconds of a model; times as many when nothing else is left
_MOST, _MOST_MODES = 64, 32  # microbatches of a route; ways to choose modes that are told apart
WIDTHS = 1, 16, 128  # states of the same counts that are kept apart: one at first
_STATES, _MOST_STATES = 4_000_000, 64_000_000  # states that a question may take
_MEMORY = 96_000_000  # bytes of the states that are kept at once
_BUCKETS = 1 << 16
_SMALL = 1 << 29  # times of schedules no longer than that are kept in 32 bits
_MORE = 4  # times as many where that was not enough
_SECONDS = 1.3e-6  # of a state, as processor time on one core of 2026
_FEW = 40  # states that take as long as what there is to do at each step besides
_HALVES, _LEAST_HALVES = 8, 0.5  # time for halves of windows, per that before; seconds
_WIDEST = 6  # windows that are halved, in ops
_LARGEST = 1 << 50  # amount of memory
_CLOSE = 1 / 5000  # of the value: no nearer to a length that is not refuted
_BASE, _PRIME = 1_000_003, (1 << 40) - 87  # what counts are multiplied by in the number of a cell
F, B, W = range(3)
_PHASES: Final[tuple[tuple[int, Phase], ...]] = (F, "F"), (B, "B")


class _Leg(NamedTuple):
    """A part of a variant; ``held`` while it runs, ``then`` until the next one; its op, if any."""

    kind: int
    resource: int
    time: int
    held: int
    then: int
    op: Op | None = None


class _ModeLegs(NamedTuple):
    """What a microbatch runs in a mode, one after the other, and BW, if B and W may be one."""

    mode: int
    legs: Sequence[_Leg]
    fused: _Leg | None


def ranks_apply(problem: Problem) -> bool:
    """Whether its routes are chains of alike microbatches, and no op has length 0."""
    if not problem.chains_only or problem.has_lists or max(problem.microbatches) > _MOST:
        return False
    rows = [[_rows(problem, stage) for stage in own] for own in problem.stages_on]
    legs = [_all_legs(chain.from_iterable(own)) for own in rows]
    if not all(leg.time and leg.held <= _LARGEST for own in legs for leg in own):
        return False
    pairs = chain.from_iterable(_pairs(problem, own) for own in legs)
    return not any(a and b and a.event[:2] == b.event[:2] for a, b in pairs)


@once
def _rows(problem: Problem, stage: int) -> list[_ModeLegs]:
    """What a stage runs, by mode."""
    found = dict[int, _ModeLegs]()
    channels = problem.devices[problem.stages[stage].device].copy_channels
    for x in useful_variants(problem, stage, 0, gains(problem)):
        legs = _legs(stage, x, channels)
        known = found.get(x.mode)
        found[x.mode] = known._replace(fused=legs[-1]) if known else _ModeLegs(x.mode, legs, None)
    return [*found.values()]


def _legs(stage: int, x: Variant, channels: int) -> list[_Leg]:
    """What a microbatch runs in a variant, one after the other."""
    op = Op(stage, "F", 0, x.mode)
    backward = op._replace(kind="B" if x.split else "BW")
    found = [_Leg(F, 0, x.forward, x.held, x.held, op)]
    if x.offloads:
        back = _Leg(COPY, channels, x.back, x.held, x.held)
        found += [_Leg(COPY, 1, x.out, x.held, x.rest), back]
    found.append(_Leg(B, 0, x.backward, x.most, x.after, backward))
    return found + [_Leg(W, 0, x.weight, x.after, 0, op._replace(kind="W"))] * x.split


def _all_legs(rows: Iterable[_ModeLegs]) -> list[_Leg]:
    return [leg for row in rows for leg in (*row.legs, row.fused) if leg is not None]


def _pairs(problem: Problem, legs: Sequence[_Leg]) -> dict[tuple[Op | None, Op | None], int]:
    """Times of the pairs of a device that gain something, in either order of the two."""
    found = dict[tuple[Op | None, Op | None], int]()
    ops = [(leg.op, leg.time) for leg in legs if leg.op]
    for (one, alone), (other, then) in combinations_with_replacement(ops, 2):
        time = time_together(problem, one, other)
        if time is not None and time < alone + then:
            found[one, other] = found[other, one] = time
    return found


def _backwards(rows: Sequence[_ModeLegs]) -> list[_ModeLegs]:
    """The rows as they look from the end: what is held between two parts stays that."""
    found = []
    for row in rows:
        then = [0, *(part.then for part in row.legs[:-1])]
        legs = [part._replace(then=x) for part, x in zip(row.legs, then, strict=True)]
        found.append(row._replace(legs=legs[::-1]))
    return found


@dataclass
class Effort:
    """How many states a question may still take."""

    left: int


class _RankWait(NamedTuple):
    """What waits for the end of others, by rank: kinds of two stages; of one variant, if stated."""

    stage: int
    kind: int
    then: int
    later: int
    lag: int
    variant: int | None = None


class _Mode:
    """Rows of a device's stages that may be mixed.

    By direction, 0 from the beginning and 1 from the end: ``until``, cells and when the device must
    be free for what is left in each.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[_ModeLegs]],
        pairs: Mapping[tuple[Op | None, Op | None], int],
        counts: Ints,
        slack: int,
        queues: list[_RankWait],
    ) -> None:
        self.rows, self.pairs, self.counts, self.slack = rows, pairs, counts, slack
        most = [
            [_most(row.legs, int(m), slack) for row in own]
            for own, m in zip(rows, counts, strict=True)
        ]
        inner = {min(x.stage, x.then) for x in queues if x.variant is None}
        self.queues, self.places = list[_RankWait](), list[int]()
        for x in queues:
            if x.variant is None:
                self.queues.append(x)
                self.places.append(max(most[min(x.stage, x.then)]))
            elif x.variant < len(rows[x.stage]) and (
                len(rows[x.stage]) > 1 or x.stage not in inner
            ):
                self.queues.append(x)
                self.places.append(most[x.stage][x.variant])
        none = np.zeros(0, np.int64)
        self.until = [(none, none), (none, none)]
        self.longest = ints([max(len(row.legs) for row in own) for own in rows])
        self.known = dict[int, tuple[Parts, Runnable, Limits]]()

    def follow(
        self,
        end: int,
        limits: Sequence[Ints],
        length: int,
        width: int,
        effort: Effort,
        runner: Runner,
    ) -> tuple[Ints, bool] | None:
        """Return the least ends by row and rank, from one end, and whether no states were merged.

        ``None``: there were too many, or time is over. ``NEVER`` where nothing is short enough.
        """
        parts, items, fixed, pool, ends = self.begin(end, limits, length)
        found = list[Ints]()
        for layer in np.arange(len(pool.layers)):
            if pool.layers[layer] != NONE:
                found.append(followers(parts, items, fixed, pool, ends, layer, width))
                made = int(found[-1][2].sum())
                runner.clock.count((made + _FEW) * _SECONDS)
                effort.left -= made
                if pool.used[0] > len(pool.key) or effort.left < 0 or runner.clock.over:
                    return None
        cells, free = _least(*np.concatenate(found, axis=1)[:2])
        if fixed.origin + self.counts @ fixed.through not in cells:  # nothing comes through
            ends[:] = NEVER
        self.until[1 - end] = _both(self.until[1 - end], (cells, length - free))
        return ends, not pool.merged[0]

    def begin(
        self, end: int, limits: Sequence[Ints], length: int
    ) -> tuple[Parts, Runnable, Limits, Pool, Ints]:
        """Return what is followed from one end, the first state, and no end by row and rank."""
        if end not in self.known:
            self.known[end] = self._arrays(end)
        parts, items, fixed = self.known[end]
        known = self.until[end]
        cells, until = table_of(*known) if len(known[0]) else known
        fixed = fixed._replace(
            earliest=limits[0], latest=limits[1], cells=cells, until=until, end=length
        )
        columns = int(fixed.column[0]) + sum(self.places)
        kind = np.int32 if length < _SMALL else np.int64
        rows = _MEMORY // (columns * np.dtype(kind).itemsize)
        pool = Pool(
            states=np.empty((rows, columns), kind),
            key=np.empty(rows, np.int64),
            first=np.full(_BUCKETS, NONE),
            next=np.empty(rows, np.int64),
            layers=np.full(1 + self.counts @ self.longest, NONE),
            free=ints([NONE]),
            used=ints([1]),
            behind=np.empty(rows, np.int64),
            merged=ints([0]),
        )
        pool.states[0], pool.key[0], pool.next[0], pool.behind[0] = 0, 0, NONE, NONE
        pool.first[0] = pool.layers[0] = 0
        return parts, items, fixed, pool, np.full(limits[0].shape, NEVER)

    def _arrays(self, end: int) -> tuple[Parts, Runnable, Limits]:
        """Parts and items, from one end, as arrays, and what bounds their states."""
        of = _Numbers([_backwards(own) for own in self.rows] if end else self.rows, self.pairs)
        size = len(of.flat)
        ends, cell = np.zeros((2, size), np.int64)
        through = np.zeros(len(self.rows), np.int64)
        weights = (pow(_BASE, n, _PRIME) for n in count(1))
        for stage, own in enumerate(of.variants):
            forwards, pending = next(weights), next(weights)
            through[stage] = forwards
            for numbers in own:
                trip = next(weights)
                cell[numbers[F]] = forwards + trip
                cell[numbers[B]] = (pending if W in numbers else 0) - trip
                ends[numbers[B]] = W not in numbers
                if W in numbers:
                    cell[numbers[W]] = -pending
        if end:
            cell, through = -cell, -through
        work, saves = of.left(((B, F, W), (B, W, F)) if end else ((W, F, B), (W, B, F)))
        opens, waits = np.full((2, size, 2), NONE)
        waiting = list[int]()
        for number, x in enumerate(self.queues):
            two = [(x.stage, x.kind), (x.then, x.later)]
            for (stage, kind), table in zip(two[::-1] if end else two, (opens, waits), strict=True):
                for variant, numbers in enumerate(of.variants[stage]):
                    if x.variant in (None, variant):
                        table[numbers[kind], int(table[numbers[kind], 0] != NONE)] = number
            waiting.append(3 * stage + kind)
        kinds = ints(part.kind for part in of.flat)
        parts = Parts(
            after=ints(part.then for part in of.flat),
            resource=ints(part.resource for part in of.flat),
            row=np.where(kinds == COPY, COPY, 3 * ints(of.stages) + kinds),
            before=ints(of.before),
            then=ints(of.then),
            stage=ints(of.stages),
            ends=ends,
            opens=opens,
            waits=waits,
        )
        columns = size + 2 * RESOURCES + 1 + len(self.rows) + len(self.queues)
        places, none = ints(self.places), np.zeros(0, np.int64)
        fixed = Limits(
            slack=self.slack,
            microbatches=self.counts,
            lag=ints(x.lag for x in self.queues),
            column=columns + np.cumsum(places) - places,
            places=places,
            waiting=ints(waiting),
            origin=-int(self.counts @ through) if end else 0,
            cell=cell,
            through=through,
            left=saves @ self.counts,
            work=work,
            gone=-saves,
            earliest=none,
            latest=none,
            cells=none,
            until=none,
            end=0,
            copies=int(COPY in kinds),
        )
        layers = np.ones(size, np.int64)
        for number, stage in enumerate(of.stages):
            if of.then[number] == NONE:
                start = number
                while of.before[start] != NONE:
                    start = of.before[start]
                layers[number] = self.longest[stage] - (number - start)
        return parts, _items(of.runs, parts, fixed, layers), fixed


class _AtOnce(NamedTuple):
    """What runs at once, for how long: one or two members, each with its parts."""

    time: int
    members: list[tuple[_Leg, list[int]]]

    @property
    def parts(self) -> list[int]:
        return [number for _, numbers in self.members for number in numbers]


class _Numbers:
    """Parts of a device's rows, numbered one after the other, and what runs at once."""

    def __init__(
        self, rows: Sequence[Sequence[_ModeLegs]], pairs: Mapping[tuple[Op | None, Op | None], int]
    ) -> None:
        self.flat, self.stages = list[_Leg](), list[int]()
        self.before, self.then = list[int](), list[int]()
        self.variants: list[list[dict[int, int]]] = [[] for _ in rows]  # by stage: kind to number
        self.runs = list[_AtOnce]()
        for stage, row in ((stage, row) for stage, own in enumerate(rows) for row in own):
            parts = [*enumerate(row.legs, len(self.flat))]
            numbers = [number for number, _ in parts]
            self.flat += row.legs
            self.stages += [stage] * len(parts)
            self.before += [NONE, *numbers[:-1]]
            self.then += [*numbers[1:], NONE]
            self.runs += [_AtOnce(part.time, [(part, [number])]) for number, part in parts]
            of = {part.kind: number for number, part in parts}
            if row.fused:
                self.runs.append(_AtOnce(row.fused.time, [(row.fused, sorted((of[B], of[W])))]))
            self.variants[stage].append(of)
        for one, other in combinations(self.runs, 2):
            time = pairs.get((one.members[0][0].op, other.members[0][0].op))
            if time is not None:
                self.runs.append(_AtOnce(time, one.members + other.members))

    def left(self, orders: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
        """What parts that have started add to the time that is left; that of a stage's microbatch.

        Either by several counts: what runs at once takes at least the sum of its parts' shares.
        """
        shares = np.unique([self._shares(order) for order in orders], axis=0)
        whole = [[[x[[*of.values()]].sum() for of in own] for own in self.variants] for x in shares]
        least = np.array([[min(own) for own in by_stage] for by_stage in whole])
        added = -shares
        for stage, own in enumerate(self.variants):
            for variant, of in enumerate(own):
                of_it = [by_stage[stage][variant] for by_stage in whole]
                added[:, min(of.values())] += of_it - least[:, stage]
        return added, least

    def _shares(self, order: Sequence[int]) -> list[int]:
        """Kinds have as much as is left, one after the other: the last ones maybe less than 0."""
        found = [0] * len(self.flat)
        known = {number for number, part in enumerate(self.flat) if part.kind == COPY}
        rest = sorted(set(range(len(found))) - known, key=lambda n: order.index(self.flat[n].kind))
        for number in rest:
            known.add(number)
            found[number] = min(
                run.time - sum(found[n] for n in run.parts)
                for run in self.runs
                if number in run.parts and known.issuperset(run.parts)
            )
        return found


def _items(runs: Sequence[_AtOnce], parts: Parts, limits: Limits, layers: Ints) -> Runnable:
    """What runs at once, as arrays."""
    members, inner = np.full((2, len(runs), 4), NONE)
    more = np.zeros(len(runs), np.int64)
    for number, run in enumerate(runs):
        members[number, : len(run.parts)] = run.parts
        inner[number, : len(run.parts)] = [n for _, own in run.members for n in range(len(own))]
        more[number] = sum(leg.held - parts.after[own[-1]] for leg, own in run.members)
    return Runnable(
        time=ints(run.time for run in runs),
        during=ints(sum(leg.held for leg, _ in run.members) for run in runs),
        more=more,
        resource=ints(run.members[0][0].resource for run in runs),
        members=members,
        inner=inner,
        layers=ints(int(layers[run.parts].sum()) for run in runs),
        cell=ints(int(limits.cell[run.parts].sum()) for run in runs),
        left=np.stack([limits.work[:, run.parts].sum(1) for run in runs], axis=1),
    )


def _most(row: Sequence[_Leg], m: int, slack: int) -> int:
    """How many microbatches of a variant may be in flight: each holds at least what stays."""
    one = min(part.then for part in row if part.kind in (F, COPY))
    return min(m, slack // one) if one else m


def _least(cells: Ints, times: Ints) -> Ints:
    """Each cell once, ascending, with the least of its times."""
    order = np.lexsort((times, cells))
    found = np.stack((cells, times))[:, order]
    return np.compress(np.diff(found[0], prepend=found[0, :1] - 1) > 0, found, axis=1)


def _both(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Cells that both have, or the second one if the first has none; the earlier time."""
    if not len(one[0]):
        return other
    cells, here, there = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    return cells, np.minimum(one[1][here], other[1][there])


class DeviceStates:
    """A device, and what is known of it in schedules of at most ``length``.

    By direction, 0 from the beginning and 1 from the end, whose times are measured backwards:
    ``earliest`` starts by row, 3 for each of its ``stages`` in their order, and rank.
    """

    def __init__(self, problem: Problem, least: Problem, device: int) -> None:
        self.stages, self.length = problem.stages_on[device], NEVER
        self.counts = ints([problem.microbatches[stage] for stage in self.stages])
        self.earliest = np.zeros((2, 3 * len(self.stages) + 1, max(self.counts)), np.int64)
        self.ends = self.earliest.copy()
        queues = list[_RankWait]()
        for n, stage in enumerate(self.stages):
            (head,) = lags_before(least, (stage,), stage, "F")
            (trip,) = lags_before(least, (stage,), stage, "B")
            self.earliest[0, 3 * n : 3 * n + 3] = head.delay
            self.earliest[1, 3 * n : 3 * n + 2] = tail_after(least, (stage,), stage)
            own = range(len(_rows(problem, stage)))
            queues += [_RankWait(n, F, n, B, trip.delay, variant) for variant in own]
            for kind, phase in _PHASES:
                (lag,) = lags_before(least, self.stages, stage, phase)
                if lag.phase == phase and lag.stage is not None:
                    queues.append(_RankWait(self.stages.index(lag.stage), kind, n, kind, lag.delay))
        rows = [_rows(problem, stage) for stage in self.stages]
        legs = _all_legs(chain.from_iterable(rows))
        pairs = _pairs(problem, legs)
        self.longest = [0] * (3 * len(self.stages))
        for leg in legs:
            if leg.op and leg.kind in (F, B):
                row = 3 * self.stages.index(leg.op.stage) + leg.kind
                times = [time for (one, _), time in pairs.items() if one == leg.op]
                self.longest[row] = max(leg.time, *times, self.longest[row])
        apart = problem.mode_choice == "stage"
        choices = [[[row] for row in own] if apart else [own] for own in rows]
        if prod(len(own) for own in choices) > _MOST_MODES:
            choices = [[own] for own in rows]
        known = problem.devices[device].slack
        slack = UNLIMITED if known is None else known
        self.modes = [_Mode(own, pairs, self.counts, slack, queues) for own in product(*choices)]

    def follow(
        self, end: int, width: int, effort: Effort, runner: Runner
    ) -> tuple[Ints, bool] | None:
        """Return the least ends by row and rank, from one end, and whether no states were merged.

        ``None``: not known. Modes in which nothing is that short are left out from now on.
        """
        limits = self._limits(end)
        found = [
            (mode, mode.follow(end, limits, self.length, width, effort, runner))
            for mode in self.modes
        ]
        known = [(mode, one) for mode, one in found if one is not None]
        if len(known) < len(found):
            return None
        self.modes = [mode for mode, one in known if one[0].min() < NEVER]
        ends = [one for _, one in known if one[0].min() < NEVER]
        least = np.min([x for x, _ in ends], axis=0, initial=NEVER) if ends else limits[1]
        self.ends[end] = np.maximum(self.ends[end], least)
        return least, all(exact for _, exact in ends)

    def ready(self) -> bool:
        """Whether it may be followed at once, with all loops compiled."""
        followed = self.modes[0].begin(0, self._limits(0), self.length)
        waits = [ready(followers, *followed, 0, 1), ready(table_of, *self.modes[0].until[0])]
        return all(waits)

    def _limits(self, end: int) -> tuple[Ints, Ints]:
        latest = np.full(self.earliest[0].shape, NONE)
        for row in range(len(latest) - 1):
            m = self.counts[row // 3]
            latest[row, :m] = self.length - self.earliest[1 - end, row, :m][::-1]
        return self.earliest[end], latest

    def within(self, length: int) -> DeviceStates:
        """A device of which as much is known, in schedules of at most some length."""
        found = copy(self)
        found.length = length
        found.earliest, found.ends = self.earliest.copy(), self.ends.copy()
        found.modes = [copy(mode) for mode in self.modes]
        for mode in found.modes:
            mode.until = [*mode.until]
        return found

    def add_to(self, v: Variables) -> None:
        """Say in a model of schedules as short when the k-th op of each kind starts and ends."""
        unit = v.times.unit
        for row, (stage, phase) in enumerate(product(self.stages, v.tasks)):
            tasks = v.tasks[phase][stage]
            if any(task.present is not True for task in tasks):
                continue  # what is absent has a number, and no rank
            latest = self.length - self.ends[1, row, : len(tasks)][::-1]
            for task, end, start in zip(tasks, self.ends[0, row], latest, strict=False):
                v.cp.add(task.end >= -(-int(end) // unit))
                v.cp.add(task.start <= int(start) // unit)

    def windows(self, place: int) -> Iterator[tuple[int, int, int, int]]:
        """How long the windows are in which the k-th F's and backwards start; row and k."""
        for row, rank in product(range(len(self.longest)), range(max(self.counts))):
            if self.longest[row] and rank < self.counts[row // 3]:
                low, high = self._window(row, rank)
                if self.longest[row] // 32 < high - low < _WIDEST * self.longest[row]:
                    yield high - low, place, row, rank

    def halve(self, row: int, rank: int, upper: DeviceStates, lower: DeviceStates) -> None:
        """Let the k-th one of a row start in the upper or the lower half of its window."""
        middle = sum(self._window(row, rank)) // 2
        upper.earliest[0, row, rank] = middle + 1
        end, back = self.length - middle - self.longest[row], self.counts[row // 3] - 1 - rank
        lower.earliest[1, row, back] = max(end, lower.earliest[1, row, back])

    def _window(self, row: int, rank: int) -> tuple[int, int]:
        back = self.counts[row // 3] - 1 - rank
        last = self.length - self.earliest[1, row, back] - self.longest[row]
        return int(self.earliest[0, row, rank]), int(last)


class KnownRanks:
    """Asks whether there is a schedule of at most some length, a share of the gap at a time."""

    def __init__(
        self, problem: Problem, incumbent: Incumbent, *, seed: int = 0, staircase: bool = True
    ) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.seed, self.staircase = seed, staircase
        self.models = problem.plain and problem.overlap is None and not is_long(problem)
        self.limit = max(_FIRST_LIMIT, model_size(problem) / CONSTRAINTS_PER_SECOND)
        self.tried = 0
        self.ended: int | None = None  # value at which nothing was left to ask
        self.share = Share(1 / 16 if problem.overlap is None else 1 / 4, more_by=2.0)
        self.possible = NEVER  # the least length that was not refuted
        self.most, self.cut, self.useful = _STATES, False, False
        self.first = len(problem.busy) - 1  # place of the device that is followed first
        self.spent, self.effort = 0.0, Effort(0)  # of a question
        self._asking: Iterator[None] = iter(())
        self._loops_ready = False

    @property
    def finished(self) -> bool:
        """Whether nothing is left to ask, unless the value becomes less."""
        return self.ended is not None and self.ended == self.incumbent.value

    @cached_property
    def _devices(self) -> list[DeviceStates]:
        (least,) = least_times_of_each_class(self.problem)
        return [DeviceStates(self.problem, least, one) for one in self.problem.busy]

    def ready(self) -> bool:
        """Whether it can be asked at once: the first run of all compiles loops for some seconds."""
        device = self._devices[0].within(self.incumbent.bound.value)
        self._loops_ready = self._loops_ready or device.ready()
        return self._loops_ready

    def step(self, runner: Runner) -> None:
        """Follow one device from one end."""
        if next(self._asking, _OVER) is _OVER:
            length = self._length()
            self.ended = self.incumbent.value if length is None else None
            if length is not None:
                self.tried += 1
                self._asking = self._ask(length, runner)

    def _length(self) -> int | None:
        """The length to ask for next, if any."""
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or bound >= value or not self.incumbent.trusts(SOURCE):
            return None
        plain = self.problem.overlap is None and not self.problem.has_modes
        if self.cut and plain and not self.useful:
            return None  # less length has hardly fewer states, and relaxations can use the time
        high = min(self.possible, value)
        if high - bound > (_CLOSE * value if high < value else 0):
            return max(bound, self.share.target(bound, high))
        if self.cut and self.most < _MOST_STATES:
            self.most, self.cut, self.possible = _MORE * self.most, False, NEVER
            return self._length()
        if self.models and self.limit < self.incumbent.clock.left:
            self.limit, self.possible = _LONGER * self.limit, NEVER
            return self._length()
        return None

    def _ask(self, length: int, runner: Runner) -> Iterator[None]:
        """Follow all devices, then with halves of windows; a bound if there is no schedule."""
        devices = [device.within(length) for device in self._devices]
        self.spent, self.effort = 0.0, Effort(self.most)
        none = yield from self._has_none(devices, range(len(devices)), self.first, WIDTHS, runner)
        models = self.models and self.limit < runner.clock.left
        if none is False and models and self._modelled(devices, length, runner):
            return
        most = max(_LEAST_HALVES, _HALVES * self.spent)
        changed = not (models or is_long(self.problem))
        while none is False and changed:
            changed = False
            for _, *window in sorted(w for n, one in enumerate(devices) for w in one.windows(n)):
                if self.spent > most:
                    break
                place, row, rank = window
                halves = [[x.within(length) for x in devices] for _ in range(2)]
                devices[place].halve(row, rank, halves[0][place], halves[1][place])
                found = list[bool | None]()
                for half in halves:
                    one = yield from self._has_none(half, [place], place, WIDTHS[:2], runner)
                    found.append(one)
                none = None if None in found else all(found)
                if none is not False:
                    break
                if any(found):
                    devices, changed = halves[found.index(False)], True
        if none:
            self.incumbent.raise_bound(Bound(length + 1, SOURCE))
            self.share.refuted()
            self.useful = True
        elif self.incumbent.bound.value <= length:
            self.possible = min(length, self.possible)
            self.share.less()

    def _modelled(self, devices: Sequence[DeviceStates], length: int, runner: Runner) -> bool:
        """Ask CP-SAT for a schedule within all windows; return whether it has answered."""
        model = build_model(self.problem, "makespan", 0, length, staircase=self.staircase)
        self.models = model.variables.times.exact and self.incumbent.trusts(PROOFS)
        if not self.models:
            return False
        for device in devices:
            device.add_to(model.variables)
        model.cp.clear_objective()  # type: ignore[no-untyped-call]
        stairs = all(staircase_applies(self.problem, device) for device in self.problem.busy)
        limit = max(self.limit, self.spent)
        cp, seed = model.cp, self.seed
        solver, status = runner.solve(cp, limit=limit, seed=seed, strong=stairs, linear=False)
        if status == cp_model.INFEASIBLE:
            self.incumbent.raise_bound(Bound(model.beyond, MODEL), PROOFS)
            self.share.refuted()
            return True
        value = self.incumbent.offer(model.order(solver.value), MODEL) if status in FOUND else None
        if value is None or value > length:
            return False
        self.share.less()
        return True

    def _has_none(
        self,
        devices: Sequence[DeviceStates],
        changed: Iterable[int],
        first: int,
        widths: Sequence[int],
        runner: Runner,
    ) -> Generator[None, None, bool | None]:
        """Go up and down the devices while something changes, and whether one has no schedule.

        ``None``: not known, or no longer of interest.
        """
        places, followed = range(len(devices)), set[int]()
        home = {stage: (d, n) for d, x in enumerate(devices) for n, stage in enumerate(x.stages)}
        new, merged = set(changed), set[int]()
        for width in widths:
            new |= merged
            for place in chain([first], cycle([*places[::-1], *places[1:-1]])):
                if not new:
                    break
                if place not in new:
                    continue
                new.remove(place)
                merged.discard(place)
                followed.add(place)
                for end in (0, 1):
                    yield
                    value, length = self.incumbent.value, devices[place].length
                    if value is None or not self.incumbent.bound.value <= length < value:
                        return None
                    begin = runner.clock.elapsed
                    found = devices[place].follow(end, width, self.effort, runner)
                    self.spent += runner.clock.elapsed - begin
                    if found is None:  # too many in all, or at once
                        self.cut = self.cut or self.effort.left < 0
                        self.first = (place - 1) % len(places)
                        return None
                    if not devices[place].modes:
                        self.first = place if followed == {place} else self.first
                        return True
                    ends, exact = found
                    merged |= set() if exact else {place}
                    for (stage, (d, n)), (kind, phase) in product(home.items(), _PHASES):
                        source = self._source(stage, kind, phase, end)
                        if source is None or home[source[0]][0] != place:
                            continue
                        m = self.problem.microbatches[stage]
                        times = devices[d].earliest[end, 3 * n + kind, :m]
                        later = ends[3 * home[source[0]][1] + kind, :m] + source[1]
                        if (later > times).any():
                            np.maximum(times, later, out=times)
                            if d != place:
                                new.add(d)
        return False

    def _source(self, stage: int, kind: int, phase: Phase, end: int) -> tuple[int, int] | None:
        """The stage whose ops of a kind those of this one follow, seen from one end; the delay."""
        route, place = self.problem.route(stage).stages, self.problem.place_of[stage]
        other = place + (1 if (kind == F) == end else -1)
        if other not in range(len(route)):
            return None
        return route[other], link_delay(self.problem, route[min(place, other)], phase)


_OVER = object()
