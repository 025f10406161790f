"""What one device must do, and how long that takes at least: every closed form, once.

docs/proofs/bounds.md derives them. Words used here, for one device:

* ``head``: a backward cannot start before its microbatch has travelled to the last stage and back;
  until then the device runs forwards only, and memory limits how many.
* ``tail``: after the device's last forward, that microbatch must travel the same way; meanwhile the
  device runs only what is left of microbatches already stored, and memory limits how many.
* ``end``: after the device's last backward, the gradient still travels to the route's first stage;
  meanwhile the device runs only pending weight gradients.
* ``load``: total compute time. ``area``: memory times time. ``pass``: one microbatch alone.

All that there is to do is a list of :class:`Work`, one for each stage and class of microbatches,
and who may come first and last a list of :class:`Crossing`, one for each route and class. Their
amounts are integers, of a problem (:mod:`pipesat.bounds.devices`), or arrays with a number for each
way to cut layers into stages (:mod:`pipesat.advise`).

Two windows of time matter. A device's own runs from its first op to its last; with the time before
it (``absolute``), it bounds the makespan, without, the span. A route's window runs from the first
F to the last backward of its first stage. It also bounds the makespan, and with a single route also
the span, because it lies within the window of the device that holds the first stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipesat.bounds.memory_counts import (
    Knapsack,
    Number,
    Option,
    in_use,
    is_table,
    least,
    most,
    shares,
    where,
)

_LARGEST = float(1 << 60)
_ROUNDED = 1 - 1e-12  # so that rounding errors cannot lift a bound


@dataclass(frozen=True)
class Work:
    """Equal microbatches of one stage: amounts of each, and how many there are.

    ``split`` and ``fused`` say which backwards are allowed, ``held`` is what each surely holds
    from F on, and ``stay`` the least time from the end of F to the start of the backward.
    """

    F: Number
    B: Number
    W: Number
    BW: Number
    held: Number
    held_after_B: Number
    split: Number
    fused: Number
    stay: Number
    number: Number

    def _less(self, apart: Number, fused: Number) -> Number:
        either = where(self.split, least((apart, fused)), fused)
        return where(self.fused, either, apart)

    @cached_property
    def least(self) -> Number:
        """Least compute time of a whole backward."""
        return self._less(self.B + self.W, self.BW)

    @cached_property
    def shortest(self) -> Number:
        """Least time from the start of a backward to its input gradient."""
        return self._less(self.B, self.BW)

    @cached_property
    def pending(self) -> Option:
        """What a weight gradient holds that waits, and what of the least work is left with it."""
        return self.held_after_B, where(self.split, most((0, self.least - self.B)), 0)

    def least_to_fill(self, idle: Number, *, alone: bool) -> Number:
        """Least work that is added, and time left idle, if weight gradients fill some time.

        Whole ones count, and the rest of the time if they are ``alone`` on the device.
        """
        left, each = self.pending[1], most((self.W, 1))
        added = self.W - left
        last = least((idle % each, added)) if alone else 0
        return where(left > 0, idle // each * added + last, idle)

    @property
    def left(self) -> list[Option]:
        """What may be left of one after the last forward: its backward, or W alone."""
        return [(self.held, self.least), *([self.pending] if np.any(self.pending[1]) else [])]

    @property
    def area(self) -> Number:
        """Memory times time that one takes at least; a table's in floats."""
        held = (self.held, self.held_after_B)
        a, w = (x.astype(float) if is_table(x) else x for x in held)
        stay = self.F + self.stay
        return self._less(a * stay + most((a, w)) * self.B + w * self.W, a * (stay + self.BW))

    def sharing(self, share_of: Callable[[int], int]) -> int:
        """As ``area``, with shares for what is held."""
        counted = replace(self, held=share_of(self.held), held_after_B=share_of(self.held_after_B))
        return int(counted.area)

    def paired(self, num: int, den: int) -> Number:
        """Least share of a backward, in parts of 1 / den: see ``factor``."""
        return self._less(den * (self.B + self.W), num * self.BW)


class Crossing(NamedTuple):
    """How one microbatch comes to a device's stages of a route, and leaves them.

    ``begin``: its earliest start there; ``turn``: from then to the first backward, that of the last
    of these stages. From the end of the last one's F: ``trip`` to its backward, from there ``back``
    to the end of all work on the first one, and ``home`` to that on the route's first. ``end``:
    from the end of the first one's backward to that of the route's first.

    ``own`` numbers the work that it is part of, ``held`` is what it surely holds of it when its
    last F ends; it may be the ``first`` and the ``last`` microbatch that comes.
    """

    begin: Number
    turn: Number
    trip: Number
    back: Number
    home: Number
    end: Number
    own: Sequence[int] = ()
    held: Number = 0
    first: bool = True
    last: bool = True


@dataclass(frozen=True)
class DeviceTerms:
    """The closed forms of one device; ``memory`` for activations is ``None`` if that is unlimited.

    ``factor``: an F and a BW may be a pair of at least num / den of both, and no less than either;
    ``in_turn``: its one stage runs microbatches in an order that all stages keep to.
    """

    work: Sequence[Work]
    ways: Sequence[Crossing]
    memory: Number
    factor: tuple[int, int] | None = None
    in_turn: bool = False

    def passes(self, *, absolute: bool) -> dict[str, Number]:
        """What holds however ops are paired, if amounts are the least: on a device's own time."""
        through = most(way.begin * absolute + way.turn + way.back for way in self.ways)
        return {"pass": through, "area": self.start * absolute + self.area}

    def route_pass(self) -> dict[str, Number]:
        """As that, of the whole route."""
        return {"route's pass": most(way.begin + way.turn + way.home for way in self.ways)}

    def own_window(self, *, absolute: bool) -> dict[str, Number]:
        """Bounds on the time until the device's last op ends."""
        busy, head = self.start * absolute + self.load, self.head(absolute=absolute) + self.load
        return {
            "load": busy,
            **self.passes(absolute=absolute),
            "head + load": head,
            "head + load + tail": where(self.is_full, head + self.tail, 0),
            **({"load around one microbatch": busy + self.around_one} if self.in_turn else {}),
        }

    def route_window(self, *, absolute: bool) -> dict[str, Number]:
        """Bounds on the time until the first stage's last backward, or all (``absolute``), ends."""
        busy, head = self.start + self.load, self.head(absolute=True) + self.load
        tail, end = self.route_tail, self.end(absolute=absolute)
        return {
            **self.route_pass(),
            "load + end": busy + end,
            "head + load + end": head + end,
            "load + route's tail": busy + tail,
            "head + load + route's tail": where(self.is_full, head + tail, 0),
        }

    def without_head(self, *, absolute: bool) -> Number:
        """Least time until either window ends, if the device never idles before a backward.

        The route's counts from the origin.
        """
        full, busy, end = self.is_full, self.start + self.load, self.end(absolute=absolute)
        own = self.start * absolute + self.load + where(full, most((0, self.tail)), 0)
        return most((own, busy + where(full, most((end, self.route_tail)), end)))

    @property
    def _first(self) -> Iterator[Crossing]:
        return (way for way in self.ways if way.first)

    @property
    def _last(self) -> Iterator[Crossing]:
        return (way for way in self.ways if way.last)

    @cached_property
    def start(self) -> Number:
        """Earliest start of anything on the device."""
        return least(way.begin for way in self._first)

    def first_backward(self, *, absolute: bool) -> Number:
        """Earliest start of any backward on the device."""
        return least(way.begin * absolute + way.turn for way in self._first)

    @cached_property
    def load(self) -> Number:
        """Least compute time."""
        forwards = sum(x.F * x.number for x in self.work)
        backwards = sum(x.least * x.number for x in self.work)
        if self.factor is None:
            return forwards + backwards
        num, den = min(self.factor), self.factor[1]
        shared = sum(x.paired(num, den) * x.number for x in self.work)
        return max(forwards, backwards, -(-(num * forwards + shared) // den))

    @cached_property
    def slack(self) -> Number:
        """The memory as far as sums of what is held can fill it."""
        return in_use(self.memory, (held for x in self.work for held in (x.held, x.held_after_B)))

    @cached_property
    def _numbers(self) -> list[Number]:
        return [x.number for x in self.work]

    @cached_property
    def _forwards(self) -> Knapsack:
        return Knapsack([[(x.held, x.F)] for x in self.work])

    @cached_property
    def _stored(self) -> Knapsack:
        return Knapsack([x.left for x in self.work])

    def head(self, *, absolute: bool) -> Number:
        """Earliest start of a backward minus what the device can have done by then."""
        before = self._forwards.most(self._numbers, self.slack)
        return self.first_backward(absolute=absolute) - before

    @cached_property
    def is_full(self) -> Number:
        """Whether the last forward must start after the first backward has."""
        return self.slack is not None and sum(x.held * x.number for x in self.work) > self.slack

    def _others(self, way: Crossing, held: Number) -> tuple[list[Number], Number]:
        """How many there are beside one microbatch, and the slack that it leaves them."""
        counts = [x.number - (number in way.own) for number, x in enumerate(self.work)]
        return counts, None if self.slack is None else self.slack - held

    def _left_after_forward(self, way: Crossing) -> Number:
        """Most work that can be left when the last forward, one of this way, has ended."""
        own = sum(self.work[number].least for number in way.own)
        return own + self._stored.most(*self._others(way, way.held))

    @cached_property
    def tail(self) -> Number:
        """Idle time after the last forward, until its microbatch is done on the device."""
        return least(way.trip + way.back - left for way, left in self._after_forward)

    @cached_property
    def route_tail(self) -> Number:
        """Idle time after the last forward, until its microbatch is done on the first stage."""
        return least(way.trip + way.home - left for way, left in self._after_forward)

    @cached_property
    def _after_forward(self) -> list[tuple[Crossing, Number]]:
        return [(way, self._left_after_forward(way)) for way in self._last]

    @cached_property
    def way_home(self) -> Number:
        """From the end of the last backward to that of the route's first stage."""
        return least(way.end for way in self._last)

    def end(self, *, absolute: bool) -> Number:
        """Idle time after the last backward, while its gradient travels to the first stage.

        And what is added to the load by weight gradients that fill it, where all must end.
        """
        if not absolute:
            return self._idle_end
        home, alone = self.way_home, len(self.work) == 1
        return most((self._idle_end, least(x.least_to_fill(home, alone=alone) for x in self.work)))

    @cached_property
    def _idle_end(self) -> Number:
        weights = Knapsack([[x.pending] for x in self.work])
        return self.way_home - weights.most(self._numbers, self.slack)

    @cached_property
    def around_one(self) -> Number:
        """Idle time while one microbatch is away, of that with the most.

        Only backwards of those before it and forwards of those after it run meanwhile, as far as
        memory beside it admits.
        """
        return max(0, *map(self._idle_while_away, self.ways)) if self.in_turn else 0

    def _idle_while_away(self, way: Crossing) -> Number:
        own = self.work[way.own[0]]
        if not own.F:
            return 0
        others = self._others(way, own.held)
        return own.stay - self._stored.most(*others) - self._forwards.most(*others)

    @cached_property
    def area(self) -> Number:
        """Sum over microbatches of memory times least residence, over the slack there is.

        Where sizes differ, also with each size counted as the share of the slack that it spoils.
        """
        slack, total = self.slack, sum(x.area * x.number for x in self.work)
        if is_table(slack):
            share = np.minimum(total / np.maximum(slack, 1), _LARGEST) * _ROUNDED
            return np.where(slack > 0, np.ceil(share), 0).astype(np.int64)
        if not slack:
            return 0
        found = -(-total // slack)
        for whole, share_of in shares({x.held for x in self.work}, slack):
            found = max(found, -(-sum(x.sharing(share_of) * x.number for x in self.work) // whole))
        return found
