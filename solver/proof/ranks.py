"""Bounds by the devices of a chain, each with its modes, that know their neighbours' ranks.

Every device is followed state by state (:mod:`pipesat.kernels.device_states`), from the beginning
and from the end, in all schedules of at most some length. What that says of the start and end of
the k-th F and of the k-th backward is passed on to the devices beside it. If one has no schedule
left, there is none (docs/proofs/search.md, "KnownRanks").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, cycle, product
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.core.arrays import Ints, ints
from pipesat.core.claims import Bound
from pipesat.kernels.arrays import NONE, UNLIMITED
from pipesat.kernels.device_states import (
    COPY,
    NEVER,
    RESOURCES,
    Limits,
    Parts,
    best,
    followers,
    keys,
    loops_ready,
    noted,
)
from pipesat.problem.ops import Phase
from pipesat.problem.problem import Problem
from pipesat.problem.variants import Variant
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner, Share
from pipesat.solver.model.left_out import lags_before, tail_after
from pipesat.solver.model.pairing import NO_GAINS, useful_variants

SOURCE = "states of all devices, by rank"
_MOST, _MOST_CELLS = 64, 4_000_000  # microbatches, and cells of a device
WIDTHS = 1, 16, 128  # states of the same counts that are kept apart: one at first
_STATES, _MOST_STATES = 8_000_000, 32_000_000  # states through which a device is followed
_MORE = 4  # times as many where that was not enough
_SECONDS = 1.3e-6  # of a state, as processor time on one core of 2026
_LARGEST = 1 << 50  # amount of memory
_CLOSE = 1 / 5000  # of the value: no nearer to a length that is not refuted
F, B, W = range(3)


class _Leg(NamedTuple):
    """A part of a variant; ``held`` while it runs, ``then`` until the next one."""

    kind: int
    resource: int
    time: int
    held: int
    then: int


_Variants: TypeAlias = Sequence[Sequence[_Leg]]


def ranks_apply(problem: Problem) -> bool:
    """Whether it is a chain with one stage per device, alike microbatches and no op of length 0."""
    alike = problem.one_stage_per_device and problem.overlap is None and not problem.has_lists
    if not alike or problem.microbatches[0] > _MOST:
        return False
    for stage in range(len(problem.stages)):
        rows = [row for _, row in _rows(problem, stage)]
        if not all(part.time and part.held <= _LARGEST for row in rows for part in row):
            return False
        if prod(_sizes(rows, problem.microbatches[0], _slack(problem, stage))) > _MOST_CELLS:
            return False
    return True


def _slack(problem: Problem, stage: int) -> int:
    slack = problem.devices[problem.stages[stage].device].slack
    return UNLIMITED if slack is None else slack


def _rows(problem: Problem, stage: int) -> list[tuple[int, Sequence[_Leg]]]:
    """Mode and parts of each variant of a stage."""
    channels = problem.devices[problem.stages[stage].device].copy_channels
    return [(x.mode, _parts(x, channels)) for x in useful_variants(problem, stage, 0, NO_GAINS)]


def _sizes(rows: _Variants, m: int, slack: int) -> list[int]:
    """How many F's may have run, how many be in flight by variant, and how many W's wait; +1 each.

    What is in flight holds at least what stays on the device.
    """
    held = [min(part.then for part in row if part.kind in (F, COPY)) for row in rows]
    return [m + 1, *(min(m, slack // one) + 1 if one else m + 1 for one in held), m + 1]


def _parts(x: Variant, channels: int) -> list[_Leg]:
    """What a microbatch runs in a variant, one after the other."""
    backward = _Leg(B, 0, x.backward, x.most, x.after)
    found = [_Leg(F, 0, x.forward, x.held, x.held), backward]
    if x.offloads:
        back = _Leg(COPY, channels, x.back, x.held, x.held)
        found[1:1] = [_Leg(COPY, 1, x.out, x.held, x.rest), back]
    return found + ([_Leg(W, 0, x.weight, x.after, 0)] if x.split else [])


def _backwards(variants: _Variants) -> _Variants:
    """The variants as they look from the end: what is held between two parts stays that."""
    found = []
    for row in variants:
        then = [0, *(part.then for part in row[:-1])]
        found.append([p._replace(then=x) for p, x in zip(row, then, strict=True)][::-1])
    return found


class _Mode:
    """Variants of a device that may be mixed, in schedules of at most ``length``.

    By direction, 0 from the beginning and 1 from the end: ``until`` by cell when the device must be
    free for what is left. ``waiting`` is how many fit between F and backward.
    """

    def __init__(
        self, rows: _Variants, microbatches: int, slack: int, lag: int, length: int
    ) -> None:
        m, self.slack, self.lag, self.length = microbatches, slack, lag, length
        self.rows, self.microbatches = rows, m
        sizes = _sizes(rows, m, slack)
        self.waiting = max(sizes[1:-1]) - 1
        self.steps = [prod(sizes[n + 1 :]) for n in range(len(sizes))]
        times = [{part.kind: part.time for part in row} for row in rows]
        whole = [own[B] + own.get(W, 0) for own in times]
        forward, least = min(own[F] for own in times), min(whole)
        begun, *trips, pending = np.indices(sizes).reshape(len(sizes), -1)
        there = sum(trips)
        left = (m - begun) * (forward + least)
        left += sum(n * time for n, time in zip(trips, whole, strict=True))
        left += pending * min((own[W] for own in times if W in own), default=0)
        done = begun * forward + (begun - there - pending) * least
        done += pending * min((own[B] for own in times if W in own), default=0)
        self.until = length - left, length - done

    def follow(
        self, end: int, limits: tuple[Ints, Ints], width: int, most: int, runner: Runner
    ) -> tuple[Ints, bool] | None:
        """Return the least ends by kind and rank, from one end, and whether no states were merged.

        ``None``: there were too many, or time is over. ``NEVER`` where nothing is short enough.
        """
        parts, fixed, states, ends, free = self.begin(end, limits)
        counts, exact = len(parts.time) + RESOURCES + 1, True
        while len(states):
            made = followers(parts, fixed, states, len(states) * len(parts.time))
            runner.clock.count(len(made) * _SECONDS)
            most -= len(made)
            if most < 0 or runner.clock.over:
                return None
            times = made[:, counts:]
            order = np.lexsort((times.sum(1), times[:, 0], keys(made, counts)))
            kept, merged = best(made, order, counts, width)
            exact = exact and not merged
            states = made[kept]
            noted(parts, fixed, states, ends, free)
        other = self.until[1 - end]
        np.minimum(other, self.length - free, out=other)
        if free[self.microbatches * self.steps[0] - fixed.origin] == NEVER:  # nothing comes through
            ends[:] = NEVER
        return ends, exact

    def begin(self, end: int, limits: tuple[Ints, Ints]) -> tuple[Parts, Limits, Ints, Ints, Ints]:
        """Return what is followed from one end, the first state, and what is known of the others.

        That is the least ends by kind and rank, and the least times by cell.
        """
        m, parts, forwards = self.microbatches, self._parts(end), self.steps[0]
        origin, through = (m * forwards, -forwards) if end else (0, forwards)
        fixed = Limits(m, self.slack, self.waiting, origin, through, *limits, self.until[end])
        free = np.full(len(self.until[end]), NEVER)
        free[origin] = 0
        columns = len(parts.time) + 2 * RESOURCES + 2 + len(self.rows) * self.waiting
        states = np.zeros((1, columns), np.int64)
        return parts, fixed, states, np.full((COPY + 1, m), NEVER), free

    def _parts(self, end: int) -> Parts:
        """The parts of all variants, from one end, as arrays."""
        rows = _backwards(self.rows) if end else self.rows
        flat = list(chain.from_iterable(rows))
        before, then, since, column = ([NONE] * len(flat) for _ in range(4))
        ends, cell = [0] * len(flat), [0] * len(flat)
        number, forwards, *trips, pending = 0, *self.steps
        columns = len(flat) + 2 * RESOURCES + 2
        for row, trip in zip(rows, trips, strict=True):
            own = range(number, number := number + len(row))
            of = {flat[n].kind: n for n in own}
            before[own[1] : number], then[own[0] : own[-1]] = own[:-1], own[1:]
            one, two = sorted((of[F], of[B]))
            since[two], column[two] = one, columns
            columns += self.waiting
            ends[of[B]] = int(W not in of)
            cell[of[F]] = forwards + trip
            cell[of[B]] = (pending if W in of else 0) - trip
            if W in of:
                cell[of[W]] = -pending
        kind, resource, time, held, after = (ints(x) for x in zip(*flat, strict=True))
        return Parts(
            time=time,
            during=held,
            after=after,
            resource=resource,
            kind=kind,
            before=ints(before),
            then=ints(then),
            since=ints(since),
            lag=ints([self.lag] * len(flat)),
            column=ints(column),
            ends=ints(ends),
            cell=-ints(cell) if end else ints(cell),
        )


class DeviceStates:
    """A device in schedules of at most ``length``.

    By direction, 0 from the beginning and 1 from the end, whose times are measured backwards:
    ``earliest`` starts by kind and rank.
    """

    def __init__(self, problem: Problem, least: Problem, stage: int, length: int) -> None:
        m, self.length = problem.microbatches[0], length
        (head,) = lags_before(least, (stage,), stage, "F")
        (trip,) = lags_before(least, (stage,), stage, "B")
        self.earliest = tuple(np.full((COPY + 1, m), time) for time in (head.delay, 0))
        self.earliest[1][:2] = tail_after(least, (stage,), stage)
        rows = defaultdict[int, list[Sequence[_Leg]]](list)
        for mode, row in _rows(problem, stage):
            rows[mode if problem.mode_choice == "stage" else 0].append(row)
        slack = _slack(problem, stage)
        self.modes = [_Mode(own, m, slack, trip.delay, length) for own in rows.values()]

    def follow(self, end: int, width: int, most: int, runner: Runner) -> tuple[Ints, bool] | None:
        """Return the least ends by kind and rank, from one end, and whether no states were merged.

        ``None``: not known. Modes in which nothing is that short are left out from now on.
        """
        limits = self._limits(end)
        found = [(mode, mode.follow(end, limits, width, most, runner)) for mode in self.modes]
        known = [(mode, one) for mode, one in found if one is not None]
        if len(known) < len(found):
            return None
        left = [(mode, one) for mode, one in known if one[0][B, -1] < NEVER]
        self.modes = [mode for mode, _ in left]
        ends = [one for _, (one, _) in left]
        return np.min(ends, axis=0, initial=NEVER), all(exact for _, (_, exact) in left)

    def ready(self) -> bool:
        """Whether it may be followed at once, with all loops compiled."""
        return loops_ready(*self.modes[0].begin(0, self._limits(0)))

    def _limits(self, end: int) -> tuple[Ints, Ints]:
        return self.earliest[end], self.length - self.earliest[1 - end][:, ::-1]


class KnownRanks:
    """Asks whether there is a schedule of at most some length, a share of the gap at a time."""

    def __init__(self, problem: Problem, incumbent: Incumbent) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.tried, self.finished = 0, False
        self.share = Share(1 / 16, more_by=2.0)
        self.possible = NEVER  # the least length that was not refuted
        self.most, self.cut = _STATES, False
        self.first = 0  # place of the device that is followed first
        self._asking: Iterator[None] = iter(())

    @cached_property
    def _any(self) -> DeviceStates:
        (least,) = least_times_of_each_class(self.problem)
        return DeviceStates(self.problem, least, self.problem.routes[0].stages[0], NEVER)

    def ready(self) -> bool:
        """Whether it can be asked at once: the first run of all compiles loops for some seconds."""
        return self._any.ready()

    def step(self, runner: Runner) -> None:
        """Follow one device from one end."""
        if next(self._asking, _OVER) is _OVER:
            length = self._length()
            self.finished = length is None
            if length is not None:
                self.tried += 1
                self._asking = self._ask(length, runner)

    def _length(self) -> int | None:
        """The length to ask for next, if any."""
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or bound >= value or not self.incumbent.trusts(SOURCE):
            return None
        high = min(self.possible, value)
        if high - bound > (_CLOSE * value if high < value else 0):
            return max(bound, self.share.target(bound, high))
        if self.cut and self.most < _MOST_STATES:
            self.most, self.cut, self.possible = _MORE * self.most, False, NEVER
            return self._length()
        return None

    def _ask(self, length: int, runner: Runner) -> Iterator[None]:
        """Go up and down the chain as long as something changes; a bound if none is that short."""
        (least,) = least_times_of_each_class(self.problem)
        stages = self.problem.routes[0].stages
        devices = [DeviceStates(self.problem, least, stage, length) for stage in stages]
        places = range(len(devices))
        new = set(places)
        for place in chain([self.first], cycle([*places, *places[-2:0:-1]])):
            if not new:
                break
            if place not in new:
                continue
            new.remove(place)
            exact = False
            for width, end in product(WIDTHS, (0, 1)):
                if exact and not end:
                    break
                yield
                value = self.incumbent.value
                if value is None or not self.incumbent.bound.value <= length < value:
                    return
                found = devices[place].follow(end, width, self.most, runner)
                if found is None:
                    self.cut, self.first = True, (place + 1) % len(places)
                    self._not_refuted(length)
                    return
                if not devices[place].modes:
                    self.incumbent.raise_bound(Bound(length + 1, SOURCE))
                    self.share.refuted()
                    self.first = place
                    return
                ends, exact = found
                for kind, other in ((F, place + 1 - 2 * end), (B, place - 1 + 2 * end)):
                    if other in places:
                        delay = self._delay(kind, stages[place], stages[other], end)
                        times = devices[other].earliest[end][kind]
                        later = np.maximum(times, ends[kind] + delay)
                        if (later > times).any():
                            times[:] = later
                            new.add(other)
        self._not_refuted(length)

    def _not_refuted(self, length: int) -> None:
        self.possible = min(length, self.possible)
        self.share.less()

    def _delay(self, kind: int, one: int, other: int, end: int) -> int:
        """The delay between the ops of a kind of two stages, seen from one end."""
        before, after = (other, one) if end else (one, other)
        phase: Phase = "B" if kind else "F"
        lags = lags_before(self.problem, (one, other), after, phase)
        return next(lag.delay for lag in lags if lag[:2] == (before, phase))


_OVER = object()
