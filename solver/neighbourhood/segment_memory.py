"""Memory within a segment: before every item that takes some, what has been taken and freed.

What is held when the segment begins does not depend on it. Literals "x ends before the event
starts" add up the rest, as in :mod:`pipesat.solver.model.memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from pipesat.core.rules import MemoryChange
from pipesat.solver.model.before import Before, changed_by, taken_at
from pipesat.solver.model.variants import Literal, Sum
from pipesat.solver.neighbourhood.slots import Otherwise, Segment, Slot


def add_memory(segment: Segment) -> None:
    """Keep a device's memory within its room at every event of its segment."""
    cp, slots, pairs = segment.cp, segment.slots, segment.pairs
    room = segment.problem.devices[segment.device].room
    if room is None:
        return
    changes, longer = segment.changes, segment.otherwise
    held = Sum(sum(change.net for change in changes))
    for _, more, literal in longer:
        held.add(more, literal)
    most = held.constant + sum(max(0, more) for _, more, _ in longer)
    _add_earlier(cp, room, changes, longer)
    if most + sum(max(x.memory.at_start for x in slot.variants) for slot in slots) <= room:
        return
    before = _Before(segment)
    changing = [slot for slot in slots if any(x.memory.net for x in slot.variants)]
    for event in slots:
        for total, condition in taken_at(event, pairs):
            total.add_all(held)
            for slot in changing:
                if slot is not event and (earlier := before(slot, event)) is not False:
                    for change, literal in changed_by(cp, slot, earlier):
                        total.add(change, literal)
            total.at_most(cp, room, condition)


def _add_earlier(
    cp: cp_model.CpModel,
    room: int,
    changes: Sequence[MemoryChange],
    longer: Sequence[Otherwise],
) -> None:
    """What F's before the segment hold otherwise must have fitted from their starts on."""
    if not any(more > 0 for _, more, _ in longer):
        return
    slack, held = [], 0
    for change in changes:
        slack.append(room - held - max(change.at_start, change.net))
        held += change.net
    places = sorted({place for place, _, _ in longer})
    for begin, end in pairwise([*places, len(changes)]):
        total = Sum(0)
        for place, more, literal in longer:
            if place <= begin:
                total.add(more, literal)
        total.at_most(cp, min(slack[begin:end]), True)


class _Before(Before[Slot]):
    """The literals of one segment's slots."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.cp, segment.pairs)
        self.position = {id(slot): n for n, slot in enumerate(segment.slots)}
        self.previous = {
            id(after): before
            for before, after in segment.neighbours(segment.slots)
            if before.present is True and after.present is True
        }
        self.first = segment.first.tolist()

    def fixed(self, x: Slot, event: Slot) -> Literal | None:
        """What the sequence and the limits say."""
        one, two = self.position[id(x)], self.position[id(event)]
        if self.first[one][two]:
            return x.present
        if self.first[two][one] or x.node.first_end > event.node.last_start:
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
