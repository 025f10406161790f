"""A bound for a single route whose microbatches run in a known order.

That order is given, or they are alike, and then one order is as good as any other. Every stage runs
its forwards, and its backwards, by number, so much is known of what runs before an op and after it:
a *head*, the earliest start of an op, and a *tail*, the least time from its end to that of all. One
device with heads and tails, its ops allowed to stop and go on, is what Jackson's rule solves
(Carlier, "The one-machine sequencing problem", 1982). The argument: proofs/bounds.md.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import TypeAlias

import numpy as np

from pipesat.bounds.devices import classes_of
from pipesat.bounds.feasibility import certain_activations
from pipesat.core.arrays import Ints
from pipesat.core.claims import Bound
from pipesat.problem.plain_problems import of_each_class
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay, round_trip
from pipesat.schedule.schedule import Objective

_MOST_STEPS = 20_000_000  # ops times microbatches: a few seconds
_MOST_STEPS_ALIKE = 1_000_000  # the same where other closed forms say much
_EXACT = 1 << 60  # sums of longer times do not fit into 64 bits

Pieces: TypeAlias = tuple[Ints, Ints]
"""Heads of some work and its lengths, or tails and lengths."""


def bounds_of_given_order(problem: Problem, objective: Objective) -> list[Bound]:
    """Return each device's bound, in time units; no pairs.

    None without :func:`heads_and_tails`; nor where microbatches are alike and memory does not keep
    a device from its load.
    """
    if problem.order != "given":
        problem, alone = classes_of(problem)
        if len(alone) > 1 or not _memory_slows_down(alone[0]):
            return []
    line = heads_and_tails(problem, objective)
    if line is None:
        return []
    return [
        Bound(
            least_lateness(line.on_device_of(places[0])),
            f"closed form: heads and tails of {problem.device_name(device)}",
        )
        for device, places in enumerate(line.places_on)
        if places
    ]


def heads_and_tails(problem: Problem, objective: Objective) -> HeadsAndTails | None:
    """Return the least time before each op and after it.

    None where ops may pair, the order is not known, there are several routes, a route is no chain,
    or ops are very many or very long.
    """
    most = _MOST_STEPS
    if problem.overlap is not None or not problem.chains_only:
        return None
    if problem.order != "given":
        problem, alone = classes_of(problem)
        if len(alone) > 1:
            return None
        problem, most = alone[0], _MOST_STEPS_ALIKE
    if len(problem.routes) > 1 or problem.op_count * max(problem.microbatches) > most:
        return None
    line = HeadsAndTails(problem, objective)
    if line.longest > _EXACT:
        return None
    line.find_heads()
    line.find_tails()
    return line


def _memory_slows_down(problem: Problem) -> bool:
    """Whether some stage's memory admits fewer microbatches than its device could work off.

    That is: while one of them is on its way out and back, and worked off on its return.
    """
    loads = [
        sum(problem.stages[s].F + problem.stages[s].least_backward_work for s in stages)
        for stages in problem.stages_on
    ]
    held = certain_activations(problem)
    for stages, device in zip(problem.stages_on, problem.devices, strict=True):
        taken = work = 0
        for s in stages:
            taken += held[s]
            work += problem.stages[s].least_backward_work
            admitted = device.slack // taken if device.slack is not None and taken else None
            away = problem.stages[s].F + round_trip(problem, s) + work
            if admitted is not None and admitted * max(loads) < away:
                return True
    return False


def least_lateness(jobs: Iterable[tuple[int, int, int]]) -> int:
    """Return the least makespan of jobs (head, length, tail) that may be interrupted.

    Of all that are there, the one with the longest tail runs.
    """
    coming = sorted(jobs, reverse=True)
    there: list[tuple[int, int]] = []  # (- tail, what is left of it)
    time = latest = 0
    while coming or there:
        if not there:
            time = max(time, coming[-1][0])
        while coming and coming[-1][0] <= time:
            _, length, tail = coming.pop()
            heapq.heappush(there, (-tail, length))
        negative, left = heapq.heappop(there)
        run = min(left, coming[-1][0] - time) if coming else left
        time += run
        if run < left:
            heapq.heappush(there, (negative, left - run))
        else:
            latest = max(latest, time - negative)
    return latest


class HeadsAndTails:
    """One route's ops, by (place of the stage on the route, microbatch).

    A backward is two pieces: its first is as long as the shortest backward, and the ``rest`` is
    what its least work is longer. ``head_back`` and ``tail_back`` are those of the first piece,
    ``late`` is the rest as far as the objective waits for it.
    """

    def __init__(self, problem: Problem, objective: Objective) -> None:
        (route,) = problem.routes
        alone = of_each_class(problem)
        classes = route.class_of_each
        self.count, self.places = route.microbatches, range(len(route.stages))
        self.places_on = [
            [problem.place_of[stage] for stage in stages] for stages in problem.stages_on
        ]
        homes = [problem.stages[stage].device for stage in route.stages]
        self.together = [self.places_on[home] for home in homes]
        self.slacks = [problem.devices[home].slack for home in homes]

        def by_place(values: Sequence[Sequence[int]]) -> Ints:
            """From values by class and stage to an array by place and microbatch."""
            return np.array(
                [[values[of_class][stage] for of_class in classes] for stage in route.stages]
            )

        stages = range(len(problem.stages))
        self.forward = by_place([[x.F for x in one.stages] for one in alone])
        self.backward = by_place([[x.shortest_backward for x in one.stages] for one in alone])
        self.work = by_place([[x.least_backward_work for x in one.stages] for one in alone])
        self.out = by_place([[link_delay(one, s, "F") for s in stages] for one in alone])
        self.home = by_place([[link_delay(one, s, "B") for s in stages] for one in alone])
        self.held = by_place([certain_activations(one) for one in alone])
        self.rest = self.late = self.work - self.backward
        if objective == "span":  # a single route's window: it ends on the first stage's device
            ends = np.array([[home == homes[0]] for home in homes])
            self.late = self.rest * ends
        weights = [[stage.held_after_B for stage in one.stages] for one in alone]
        self.kept = self.held - by_place(weights)
        self.price = [self._price(place) for place in self.places]
        self.freed = [self._freed_before(place) for place in self.places]
        self.head, self.head_back, self.tail, self.tail_back = (
            np.zeros_like(self.forward) for _ in range(4)
        )

    @property
    def longest(self) -> int:
        """All lengths and delays, one after the other."""
        every = (self.forward, self.work, self.out, self.home)
        return sum(int(times.sum(dtype=object)) for times in every)

    def _freed_before(self, place: int) -> list[int]:
        """Per microbatch, how many of the stage's backwards end before its forward starts.

        Those without which memory does not fit. A forward that takes no time waits for none.
        """
        slack, first, stored, freed = self.slacks[place], 0, 0, []
        held = self.held[place].tolist()
        for number, own in enumerate(held):
            stored += own
            while slack is not None and stored > slack and first < number:
                stored -= held[first]
                first += 1
            freed.append(first if self.forward[place, number] else 0)
        return freed

    def _price(self, place: int) -> Fraction:
        """Least work that frees a unit of memory before a forward: backwards, with W or without."""
        own = [t for t in self.together[place] if t <= place]
        frees = ((self.work, self.held), (self.backward, self.kept))
        rates = {
            Fraction(work, freed)
            for times, amounts in frees
            for t in own
            for work, freed in zip(times[t].tolist(), amounts[t].tolist(), strict=True)
            if freed > 0
        }
        return min(rates, default=Fraction(0))

    def on_device_of(self, place: int) -> Iterator[tuple[int, int, int]]:
        """(head, length, tail) of all pieces on a device."""
        for t in self.together[place]:
            back = self.head_back[t]
            for head, length, tail in (
                (self.head[t], self.forward[t], self.tail[t]),
                (back, self.backward[t], self.tail_back[t]),
                (back + self.backward[t], self.late[t], np.zeros_like(back)),
            ):
                yield from zip(head.tolist(), length.tolist(), tail.tolist(), strict=True)

    def find_heads(self) -> None:
        """Find all heads, microbatch by microbatch along its way."""
        forwards, backwards = (self.head, self.forward), (self.head_back, self.backward)
        for k in range(self.count):
            there = 0
            for s in self.places:
                freed = self.freed[s][k]
                before = [_part(forwards, t, 0, k + (t < s)) for t in self.together[s] if t <= s]
                before += [_part(backwards, t, 0, freed) for t in self.together[s] if t > s]
                there = max(there, self._least_time_to_free(s, k, before))
                before.append(_part(backwards, s, 0, freed))
                self.head[s, k] = there = max(there, _least_time(before))
                there += int(self.forward[s, k] + self.out[s, k])
            for s in reversed(self.places):
                before = [_part(forwards, t, 0, k + 1) for t in self.together[s]]
                before += [_part(backwards, t, 0, k + (t > s)) for t in self.together[s] if t >= s]
                there += int(self.home[s, k])
                self.head_back[s, k] = there = max(there, _least_time(before))
                there += int(self.backward[s, k])

    def _least_time_to_free(self, place: int, k: int, before: Sequence[Pieces]) -> int:
        """Earliest end of what frees enough for microbatch k's forward, and of other pieces.

        Of what is yet to be freed at the head of a backward, those with earlier heads may have
        freed their share.
        """
        slack, own = self.slacks[place], [t for t in self.together[place] if t <= place]
        if slack is None or not self.forward[place, k]:
            return 0
        missing = sum(int(self.held[t, : k + 1].sum()) for t in own) - slack
        if missing <= 0:
            return 0
        starts, sums = _by_head(before)
        heads, left = starts.tolist(), [*sums.tolist(), 0]
        earliest, price = 0, self.price[place]
        items = ((self.head_back[t, :k].tolist(), self.held[t, :k].tolist()) for t in own)
        for head, freed in sorted(chain.from_iterable(zip(*item, strict=True) for item in items)):
            work = left[bisect_left(heads, head)] + math.ceil(missing * price)
            earliest = max(earliest, head + work)
            missing -= freed
            if missing <= 0:
                break
        return earliest

    def find_tails(self) -> None:
        """Find all tails, from the last microbatch's end of its way on."""
        forwards, backwards = (self.tail, self.forward), (self.tail_back, self.backward)
        waiting = [_first_waiting(freed) for freed in self.freed]
        end = self.count
        for k in reversed(range(end)):
            left = 0
            for s in self.places:
                later = waiting[s][k]
                after = [_part(forwards, t, later, end) for t in self.together[s] if t >= s]
                rest = 0
                for t in self.together[s]:
                    first = k if t <= s else later
                    after.append(_part(backwards, t, first + (t == s), end))
                    rest += int(self.late[t, first:].sum())
                self.tail_back[s, k] = left = max(left, _least_time(after, rest))
                left += int(self.backward[s, k] + self.home[s, k])
            for s in reversed(self.places):
                after = [_part(forwards, t, k + (t == s), end) for t in self.together[s] if t >= s]
                after += [_part(backwards, t, k, end) for t in self.together[s]]
                rest = sum(int(self.late[t, k:].sum()) for t in self.together[s])
                self.tail[s, k] = left = max(left, _least_time(after, rest))
                left += int(self.forward[s, k] + (self.out[s - 1, k] if s else 0))


def _part(pieces: Pieces, place: int, first: int, end: int) -> Pieces:
    times, lengths = pieces
    return times[place, first:end], lengths[place, first:end]


def _by_head(pieces: Sequence[Pieces]) -> Pieces:
    """Return heads, sorted, and the lengths from each of them on, in sum."""
    heads = np.concatenate([head for head, _ in pieces])
    order = heads.argsort()
    lengths = np.concatenate([length for _, length in pieces])[order]
    return heads[order], lengths[::-1].cumsum()[::-1]


def _least_time(pieces: Sequence[Pieces], begun: int = 0) -> int:
    """Least time in which a device runs pieces, none before its head, and ``begun`` at any time.

    Of tails: the least time from the start of the pieces to the end of all that follows them.
    """
    heads, left = _by_head(pieces)
    if not len(heads):
        return begun
    return max(begun + int(left[0]), int((heads + left).max()))


def _first_waiting(freed: Sequence[int]) -> list[int]:
    """Per microbatch, the first whose forward starts after its backward has ended."""
    first = [len(freed)] * len(freed)
    for number in reversed(range(len(freed))):
        first[: freed[number]] = [number] * freed[number]
    return first
