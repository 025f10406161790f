"""Memory within a segment: by order, and over time where copies make it depend on times.

*By order.* Before every item that takes some, what has been taken and freed. What is held when the
segment begins does not depend on it. Literals "x ends before the event starts" add up the rest, as
in :mod:`pipesat.solver.model.memory`.

*Over time.* What is held from one part to another is an interval, from the window's first moment on
and for good if it is released after the window. What follows the window asks for no more than at
present: it comes after all that is free here, and waits for the copies out that have ended by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ortools.sat.python import cp_model

from pipesat.problem.ops import PHASE_OF, Op, members
from pipesat.problem.variants import Key, Variant
from pipesat.solver.model.alternatives import COPIES, Literal, Part, Sum
from pipesat.solver.model.before import Before, changed_by, taken_at
from pipesat.solver.model.passages import Holding, holdings
from pipesat.solver.windows.graph import Done, channel_of
from pipesat.solver.windows.slots import FreeRow, Otherwise, Segment, Slot, now_of


def add_memory(segment: Segment) -> None:
    """Keep a device's memory within its slack at every event of its segment."""
    cp, slots, pairs = segment.cp, segment.slots, segment.pairs
    slack = segment.problem.devices[segment.device].slack
    if slack is None:
        return
    longer = segment.otherwise
    held = Sum(0)
    levels = []
    for place, earlier in enumerate(segment.changes):
        levels.append((place, held.constant + max(earlier.at_start, earlier.net)))
        held.constant += earlier.net
    _add_earlier(cp, slack, levels, longer, len(levels))
    most = held.constant + sum(max(0, more) for _, more, _ in longer)
    for _, more, literal in longer:
        held.add(more, literal)
    if most + sum(max(x.memory.at_start for x in slot.alternatives) for slot in slots) <= slack:
        return
    before = _SegmentBefore(segment)
    changing = [slot for slot in slots if any(x.memory.net for x in slot.alternatives)]
    for event in slots:
        for total, condition in taken_at(event, pairs):
            total.add_all(held)
            for slot in changing:
                if slot is not event and (ended := before(slot, event)) is not False:
                    for change, literal in changed_by(cp, slot, ended):
                        total.add(change, literal)
            total.at_most(cp, slack, condition)


def _add_earlier(
    cp: cp_model.CpModel,
    slack: int,
    levels: Sequence[tuple[int, int]],
    longer: Sequence[Otherwise],
    end: int,
) -> None:
    """What F's before the segment hold otherwise must have fitted from their starts on.

    ``levels`` has what was held at most from when on; the segment begins at ``end``.
    """
    if not any(more > 0 for _, more, _ in longer):
        return
    for since, until in pairwise([*sorted({since for since, *_ in longer}), end]):
        total = Sum(0)
        for start, more, literal in longer:
            if start <= since:
                total.add(more, literal)
        held = [level for when, level in levels if since <= when < until]
        total.at_most(cp, slack - max(held, default=0), True)


def add_memory_over_time(
    segment: Segment, free: Mapping[int, FreeRow], slots: Mapping[Done, Slot]
) -> None:
    """Keep a device's memory within its slack at every moment from the segment's first on."""
    if segment.slack is not None:
        _OverTime(segment, segment.slack, free, slots).add()


class _Times(NamedTuple):
    """From when to when something is held: ``None`` is after the window."""

    begin: cp_model.LinearExpr | int | None
    end: cp_model.LinearExpr | int | None


class _OverTime:
    """Memory of one device over time; ``begin`` and ``end`` are of what is free."""

    def __init__(
        self,
        segment: Segment,
        slack: int,
        free: Mapping[int, FreeRow],
        slots: Mapping[Done, Slot],
    ) -> None:
        self.segment, self.slack, self.slots = segment, slack, slots
        self.cp, self.graph, self.problem = segment.cp, segment.graph, segment.problem
        rows = {channel_of(self.problem, segment.device, part) for part in COPIES}
        own = [segment, *(free[row] for row in sorted(rows) if row in free)]
        self.past = {number for row in own for number in row.earlier}
        nodes = [slot for row in own for slot in row.slots]
        self.begin, self.end = min(n.low for n in nodes), max(n.high for n in nodes)
        self.intervals: list[cp_model.IntervalVar] = []
        self.amounts: list[int] = []

    def add(self) -> None:
        """Add the constraint, and that of the time before it."""
        here: dict[Key, dict[str, Op]] = {}
        for item in self.segment.items((*self.segment.earlier, *self.segment.row)):
            for op in members(item):
                here.setdefault(op[::2], {})[PHASE_OF[op.kind]] = op
        before: list[tuple[int, int]] = []  # what changes in the past, and when
        longer: list[Otherwise] = []
        for key, ops in here.items():
            now = now_of(self.problem, ops.get("B", ops["F"]))
            choice = self.segment.choices.get(key)
            for variant, chosen in {now: True}.items() if choice is None else choice.chosen.items():
                for holding in holdings(variant):
                    self._hold(key, holding, chosen)
            if choice is not None and key in self.segment.outside:
                start = self.graph.start[self.graph.number[*key[:1], "F", key[1]]]
                for variant, chosen in choice.chosen.items():
                    if variant.held != now.held:
                        longer.append(Otherwise(start, variant.held - now.held, chosen))
            before += self._in_the_past(key, now)
        self.cp.add_cumulative(self.intervals, self.amounts, self.slack)
        levels, held = [], 0
        for time, amount in sorted(before):
            held += amount
            levels.append((time, held))
        _add_earlier(self.cp, self.slack, levels, longer, self.begin)

    def _number(self, key: Key, part: Part) -> int | None:
        return self.graph.number.get((key[0], part, key[1]))

    def _times(self, key: Key, holding: Holding) -> _Times:
        first = self.slots.get((key[0], holding.begin, key[1]))
        last = self.slots.get((key[0], holding.end, key[1]))
        begin: cp_model.LinearExpr | int | None = None
        end: cp_model.LinearExpr | int | None = None
        if first is not None:
            begin = first.start
            if holding.end == "W":
                begin = self.segment.pairs.end_of(first, holding.offset)
        elif (number := self._number(key, holding.begin)) in self.past:
            begin = self.graph.end(number) if holding.end == "W" else self.graph.start[number]
        if last is not None:
            end = self.segment.pairs.end_of(last, holding.length)
        elif (number := self._number(key, holding.end)) in self.past:
            end = self.graph.end(number)
        return _Times(begin, end)

    def _hold(self, key: Key, holding: Holding, chosen: Literal) -> None:
        """Add an interval in which something is held, if its variant is chosen."""
        begin, end = self._times(key, holding)
        if begin is None or chosen is False:
            return
        if isinstance(begin, int):
            begin = max(begin, self.begin)
        if end is None:
            end = self.end
        slot = self.slots.get((key[0], holding.begin, key[1]))
        alone = slot is not None and not self.segment.pairs.partners(slot)
        if isinstance(end, int) and isinstance(begin, int):
            if end <= begin:
                return
            interval = self.cp.new_optional_fixed_size_interval_var(begin, end - begin, chosen, "")
        elif holding.begin == holding.end and alone:
            interval = self.cp.new_optional_fixed_size_interval_var(
                begin, holding.length, chosen, ""
            )
        else:
            size: cp_model.LinearExprT = end - begin
            if not (isinstance(begin, int) or isinstance(end, int)):
                size = self.cp.new_int_var(0, max(0, self.end - self.begin), "")
            interval = self.cp.new_optional_interval_var(begin, size, end, chosen, "")
        self.intervals.append(interval)
        self.amounts.append(holding.amount)

    def _in_the_past(self, key: Key, now: Variant) -> Iterator[tuple[int, int]]:
        """Yield when what is held has changed before the window, and by how much."""
        for holding in holdings(now):
            begin, end = self._times(key, holding)
            if isinstance(begin, int):
                yield begin, holding.amount
                if isinstance(end, int):
                    yield end, -holding.amount


class _SegmentBefore(Before[Slot]):
    """The literals of one segment's slots."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.cp, segment.pairs)
        self.position = {id(slot): n for n, slot in enumerate(segment.slots)}
        self.previous = {id(after): before for before, after in segment.neighbours()}
        self.first = segment.first.tolist()

    def fixed(self, x: Slot, event: Slot) -> Literal | None:
        """What the sequence and the limits say."""
        one, two = self.position[id(x)], self.position[id(event)]
        if self.first[one][two]:
            return x.present
        if self.first[two][one] or x.low + x.least > event.last_start:
            return False
        return None

    def link(self, x: Slot, event: Slot, literal: cp_model.IntVar) -> None:
        """What is before x is before the event too; x is before what comes after the event."""
        if x.present is not True:  # an optional W only frees memory: one direction is enough
            return
        cp = self.cp
        apart = x.item is None or x.item != event.item
        first = self.position[id(x)] < self.position[id(event)]
        cp.add_hint(literal, first and apart)
        if (earlier := self.previous.get(id(x))) is not None and earlier is not event:
            other = self(earlier, event)
            if not isinstance(other, bool):
                cp.add_implication(literal, other)
        if (sooner := self.previous.get(id(event))) is not None and sooner is not x:
            other = self(x, sooner)
            if not isinstance(other, bool):
                cp.add_implication(other, literal)
