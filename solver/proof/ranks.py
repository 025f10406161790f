"""Bounds by the devices of a chain, each with its modes, that know their neighbours' ranks.

Every device is followed state by state (:mod:`pipesat.kernels.device_states`), from the beginning
and from the end, in all schedules of at most some length. What that says of the start and end of
the k-th F and of the k-th backward is passed on to the devices beside it. If one has no schedule
left, there is none (docs/proofs/search.md, "Ranks").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, product
from typing import Final, NamedTuple, TypeAlias

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
    noted,
)
from pipesat.problem.problem import Problem
from pipesat.problem.variants import Variant
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import PROOFS, Runner
from pipesat.solver.model.left_out import lags_before, tail_after
from pipesat.solver.model.pairing import useful_variants

_MOST = 64  # microbatches
WIDTHS = 1, 16, 128  # states of the same counts that are kept apart: one at first
_ROOM = 200_000  # states that one step of a device may have at first
_MOST_ROOM = 1_000_000
_MORE = 4  # times as many where that was not enough
_SECONDS = 2e-6  # of a state, as processor time on one core of 2026
_CLOSE = 1 / 5000  # of the value: no nearer to a length that is not refuted
F, B, W = range(3)


class _Part(NamedTuple):
    """A part of a variant; ``held`` while it runs, ``then`` until the next one."""

    kind: int
    resource: int
    time: int
    held: int
    then: int


def ranks_apply(problem: Problem) -> bool:
    """Whether it is a chain with one stage per device, alike microbatches and no op of length 0."""
    return (
        problem.one_stage_per_device
        and problem.overlap is None
        and not problem.has_lists
        and problem.microbatches[0] <= _MOST
        and all(
            part.time
            for stage in range(len(problem.stages))
            for variant in useful_variants(problem, stage)
            for part in _parts(variant, 1)
        )
    )


def _parts(x: Variant, channels: int) -> list[_Part]:
    """What a microbatch runs in a variant, one after the other."""
    backward = _Part(B, 0, x.backward, x.most, x.after)
    found = [_Part(F, 0, x.forward, x.held, x.held), backward]
    if x.offloads:
        back = _Part(COPY, channels, x.back, x.held, x.held)
        found[1:1] = [_Part(COPY, 1, x.out, x.held, x.rest), back]
    return found + ([_Part(W, 0, x.weight, x.after, 0)] if x.split else [])


_Rows: TypeAlias = Sequence[Sequence[_Part]]


def _backwards(variants: _Rows) -> _Rows:
    """The variants as they look from the end: what is held between two parts stays that."""
    found = []
    for row in variants:
        between = [*(part.then for part in row[:-1]), 0]
        then = [0, *between[:-1]]
        found.append([p._replace(then=x) for p, x in zip(row, then, strict=True)][::-1])
    return found


def _table(variants: _Rows, lag: int, waiting: int) -> tuple[Parts, int]:
    """The parts of all variants as arrays, and how many columns a state has."""
    flat = list(chain.from_iterable(variants))
    before, then, since, column, ends = ([NONE] * len(flat) for _ in range(5))
    columns, number = len(flat) + 2 * RESOURCES + 2, 0
    for row in variants:
        own = range(number, number := number + len(row))
        trip = [n for n in own if flat[n].kind in (F, B)]
        before[own[0] + 1 : own[-1] + 1], then[own[0] : own[-1]] = own[:-1], own[1:]
        since[trip[1]], column[trip[1]] = trip[0], columns
        columns += waiting
        fused = all(part.kind != W for part in row)
        for n in own:
            ends[n] = int(fused and flat[n].kind == B)
    kind, resource, time, held, after = (ints(x) for x in zip(*flat, strict=True))
    lags = ints([lag] * len(flat))
    rows = (ints(x) for x in (before, then, since))
    return Parts(time, held, after, resource, kind, *rows, lags, ints(column), ints(ends)), columns


class _Found(NamedTuple):
    """Least ends by kind and rank, and when the device is free at the earliest, by counts."""

    ends: Ints
    free: Ints


class _Ways:
    """All ways of a device through its states, in some variants; ``exact``: none were merged."""

    def __init__(self, variants: _Rows, lag: int, limits: Limits, width: int) -> None:
        self.parts, columns = _table(variants, lag, limits.waiting)
        self.limits, self.width, self.exact = limits, width, True
        m = limits.microbatches
        self.ends = np.full((COPY + 1, m), NEVER)
        self.free = np.full((m + 1, m + 1, m + 1), NEVER)
        self.free[0, 0, 0] = 0
        self.states = np.zeros((1, columns), np.int64)

    def follow(self, room: int, runner: Runner) -> bool:
        """Follow all ways; return whether they were not too many, and there was time."""
        counts = len(self.parts.time) + RESOURCES + 1
        while len(self.states):
            most = len(self.states) * len(self.parts.time)
            made = followers(self.parts, self.limits, self.states, most)
            runner.clock.count(len(made) * _SECONDS)
            if len(made) > room or runner.clock.over:
                return False
            times = made[:, counts:]
            order = np.lexsort((times.sum(1), times[:, 0], keys(made, counts)))
            kept, merged = best(made, order, counts, self.width)
            self.exact = self.exact and not merged
            self.states = made[kept]
            noted(self.parts, self.states, self.ends, self.free)
        return True


class Device:
    """A device in schedules of at most ``length``.

    Times from the end are measured backwards. By direction, 0 from the beginning and 1 from the
    end: ``earliest`` starts by kind and rank. ``modes`` has the variants that may be mixed, with
    the times by which the device must be free, by direction too.
    """

    def __init__(self, problem: Problem, least: Problem, stage: int, length: int) -> None:
        self.microbatches, self.length = problem.microbatches[0], length
        device = problem.devices[problem.stages[stage].device]
        self.slack = UNLIMITED if device.slack is None else device.slack
        kept = (stage,)
        (head,) = lags_before(least, kept, stage, "F")
        (trip,) = lags_before(least, kept, stage, "B")
        tail = tail_after(least, kept, stage)
        self.lag = trip.delay
        self.earliest = tuple(
            np.full((COPY + 1, self.microbatches), time, np.int64) for time in (head.delay, 0)
        )
        self.earliest[1][:2] = tail
        own = [
            (variant.mode, _parts(variant, device.copy_channels))
            for variant in useful_variants(problem, stage)
        ]
        mixed = problem.mode_choice == "microbatch"
        several = dict.fromkeys(0 if mixed else mode for mode, _ in own)
        self.modes = []
        for chosen in several:
            rows = [row for mode, row in own if mixed or mode == chosen]
            until = self._until(rows)
            self.modes.append((rows, (until, until.copy())))

    def _until(self, rows: _Rows) -> Ints:
        """The latest times by which the device must be free for the least work that is left."""
        times = [{part.kind: part.time for part in row} for row in rows]
        forward = min(own[F] for own in times)
        whole = min(own[B] + own.get(W, 0) for own in times)
        half = min((min(own[B], own[W]) for own in times if W in own), default=0)
        left = np.arange(self.microbatches, -1, -1)
        b, done = left[:, None], left[None, :]
        work = np.minimum(b, done) * whole + abs(b - done) * half
        found: Ints = self.length - forward * left[:, None, None] - work
        return found

    def follow(self, end: int, width: int, room: int, runner: Runner) -> tuple[Ints, bool] | None:
        """Return the least ends by kind and rank, from one end, and whether they are exact.

        ``None``: not known. Modes in which nothing is that short are left out from now on.
        """
        m, slack = self.microbatches, self.slack
        latest = self.length - self.earliest[1 - end][:, ::-1]
        ends, exact, left = np.full((COPY + 1, m), NEVER), True, []
        for rows, until in self.modes:
            held = min(part.then for row in rows for part in row if part.kind in (F, COPY))
            waiting = min(m, slack // held) if held else m
            limits = Limits(m, slack, waiting, self.earliest[end], latest, until[end])
            ways = _Ways(_backwards(rows) if end else rows, self.lag, limits, width)
            if not ways.follow(room, runner):
                return None
            exact = exact and ways.exact
            if ways.free[-1, -1, -1] < NEVER:
                other = until[1 - end]
                np.minimum(other, self.length - ways.free[::-1, ::-1, ::-1], out=other)
                np.minimum(ends, ways.ends, out=ends)
                left.append((rows, until))
        self.modes = left
        return ends, exact


class Ranks:
    """Asks whether there is a schedule of at most some length, halfway to what is not refuted."""

    def __init__(self, problem: Problem, incumbent: Incumbent) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.tried, self.finished = 0, False
        self.possible: int | None = None  # the least length that was not refuted
        self.room, self.cut = _ROOM, False
        self._asking: Iterator[None] = iter(())

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
        if value is None or not self.incumbent.trusts(PROOFS):
            return None
        high = value if self.possible is None else min(self.possible, value)
        if high - bound > _CLOSE * value:
            return (bound + high) // 2
        if high == value and bound < value:
            return value - 1
        if not self.cut or self.room >= _MOST_ROOM:
            return None
        self.room, self.cut, self.possible = _MORE * self.room, False, None
        return self._length()

    def _ask(self, length: int, runner: Runner) -> Iterator[None]:
        """Go up and down the chain as long as something changes; a bound if none is that short."""
        problem = self.problem
        (least,) = least_times_of_each_class(problem)
        stages = problem.routes[0].stages
        devices = [Device(problem, least, stage, length) for stage in stages]
        new = set(range(len(devices)))
        up = range(len(devices))
        for place in cycle([*up, *up[-2:0:-1]]):
            if not new:
                break
            if place not in new:
                continue
            new.remove(place)
            device = devices[place]
            for width, end in product(WIDTHS, (0, 1)):
                yield
                value = self.incumbent.value
                if self.incumbent.bound.value > length or value is None or value <= length:
                    return
                found = device.follow(end, width, self.room, runner)
                if found is None:
                    self.cut = True
                    break
                if not device.modes:
                    source = "CP on ranks"
                    self.incumbent.raise_bound(Bound(length + 1, source), PROOFS)
                    return
                ends, exact = found
                for kind, other in ((F, place + 1 - 2 * end), (B, place - 1 + 2 * end)):
                    if 0 <= other < len(devices):
                        delay = self._delay(kind, stages[place], stages[other], end)
                        times = devices[other].earliest[end][kind]
                        later = np.maximum(times, ends[kind] + delay)
                        if (later > times).any():
                            times[:] = later
                            new.add(other)
        self.possible = length if self.possible is None else min(length, self.possible)

    def _delay(self, kind: int, one: int, other: int, end: int) -> int:
        """The delay between the ops of a kind of two stages, seen from one end."""
        before, after = (other, one) if end else (one, other)
        lags = lags_before(self.problem, (one, other), after, "FB"[kind])
        return next(lag.delay for lag in lags if lag.stage == before and lag.phase == "FB"[kind])


_OVER = object()
