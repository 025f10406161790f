"""Memory within a segment: before every item that takes some, what has been taken and freed.

What is held when the segment begins does not depend on it. Literals "x ends before the event
starts" add up the rest, as in :mod:`pipesat.solver.model.memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from pipesat.core.ops import Phase, members
from pipesat.core.rules import MemoryChange, memory_in_order
from pipesat.solver.model.before import Before, changed_by, taken_at
from pipesat.solver.model.variants import Literal, Sum
from pipesat.solver.neighbourhood.slots import Segment, Slot

_NEEDS: dict[Phase, tuple[Phase, ...]] = {"F": ("F",), "B": ("F", "B"), "W": ()}
"""Phases of a microbatch, on whatever chunk, that come before the next chunk's."""


def add_memory(segment: Segment) -> None:
    """Keep a device's memory within its room at every event of its segment."""
    cp, slots, pairs = segment.cp, segment.slots, segment.pairs
    room = segment.problem.devices[segment.device].room
    if room is None:
        return
    changes = [memory_in_order(segment.problem, item) for item in segment.items(segment.earlier)]
    held = Sum(sum(change.net for change in changes))
    longer = _held_otherwise(segment)
    for _, more, literal in longer:
        held.add(more, literal)
    most = held.constant + sum(max(0, more) for _, more, _ in longer)
    _add_earlier(cp, room, changes, longer)
    if most + sum(max(x.memory.at_start for x in slot.variants) for slot in slots) <= room:
        return
    before = _Before(segment)
    for event in slots:
        for total, condition in taken_at(event, pairs):
            total.add_all(held)
            for slot in slots:
                if slot is not event and any(x.memory.net for x in slot.variants):
                    for change, literal in changed_by(cp, slot, before(slot, event)):
                        total.add(change, literal)
            total.at_most(cp, room, condition)


Otherwise = tuple[int, int, Literal]
"""Place in the row of an F before the segment, how much more it holds in a way, and whether so."""


def _held_otherwise(segment: Segment) -> list[Otherwise]:
    found = []
    for choice in segment.choices.values():
        if choice.outside is None:
            continue
        ((now,),) = map(members, segment.items([segment.earlier[choice.outside]]))
        held = memory_in_order(segment.problem, now).net
        for (mode, _), literal in choice.ways.items():
            more = memory_in_order(segment.problem, now._replace(mode=mode)).net - held
            if more:
                found.append((choice.outside, more, literal))
    return sorted(found, key=lambda one: one[0])


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
        self.earlier = self._closure(segment)

    def _closure(self, segment: Segment) -> dict[int, int]:
        """Per slot, the bit set of positions that must come before it, where it and they exist.

        By stage and phase order, by each microbatch's way, and by what these imply.
        """
        last: dict[tuple[int, str, int], Slot] = {}
        earlier: dict[int, int] = {}
        for slot in segment.slots:  # the present order is one of those allowed: sources come first
            bits = 0
            sources = []
            if (before := self.previous.get(id(slot))) is not None:
                if self.choices.together(before, slot):
                    bits = earlier[id(before)]  # not after it, or together with it
                    before = self.previous.get(id(before))
                sources = [] if before is None else [before]
            op, phase, route = slot.op, slot.phase, segment.problem.route_of[slot.op.stage]
            needed = [(route, x, op.microbatch) for x in _NEEDS[phase]]
            if phase == "W":
                needed = [(-1 - op.stage, "B", op.microbatch)]
            sources += [last[key] for key in needed if key in last]
            last[route, phase, op.microbatch] = last[-1 - op.stage, phase, op.microbatch] = slot
            for source in sources:
                bits |= earlier[id(source)] | 1 << self.position[id(source)]
            earlier[id(slot)] = bits
        return earlier

    def fixed(self, x: Slot, event: Slot) -> Literal | None:
        """What the order of stage and phase, each microbatch's way, and the limits say."""
        if x.node.high <= event.node.low:
            return x.present
        if x.node.first_end > event.node.last_start:
            return False
        if self.earlier[id(event)] >> self.position[id(x)] & 1:
            return True
        if self.earlier[id(x)] >> self.position[id(event)] & 1:
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
