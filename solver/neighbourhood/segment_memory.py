"""Memory within a segment: before every item that takes some, what has been taken and freed.

What is held when the segment begins does not depend on it. Literals "x ends before the event
starts" add up the rest, as in :mod:`pipesat.solver.model.order_literals`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from pipesat.core.ops import Kind, Phase
from pipesat.core.problem import Problem
from pipesat.core.rules import MemoryChange, duration, memory_change
from pipesat.solver.model.before import Before
from pipesat.solver.model.literals import Literal, Sum, conjunction, either
from pipesat.solver.model.pair_choices import PairChoices
from pipesat.solver.neighbourhood.graph import Graph
from pipesat.solver.neighbourhood.slots import Slot, chains_of

_NEEDS: dict[Phase, tuple[Phase, ...]] = {"F": ("F",), "B": ("F", "B"), "W": ()}
"""Phases of a microbatch, on whatever chunk, that come before the next chunk's."""


def add_memory(
    problem: Problem,
    graph: Graph,
    cp: cp_model.CpModel,
    earlier: Sequence[int],
    slots: Sequence[Slot],
    device: int,
    pairs: PairChoices[Slot],
) -> None:
    """Keep a device's memory within its room at every event of its segment."""
    room = problem.devices[device].room
    if room is None:
        return
    held = sum(memory_change(problem, graph.sequence.item[item]).net for item in earlier)
    if held + sum(_most_taken(problem, slot) for slot in slots) <= room:
        return
    before = _Before(problem, cp, slots, pairs)
    for event in slots:
        for taken, condition in _events(problem, event, pairs):
            total = Sum(held + taken)
            for choice, partner, kind in pairs.partners(event):
                total.add(_memory(problem, partner, kind).at_start, choice.literal)
            for slot in slots:
                if slot is not event:
                    for change, literal in _changes(problem, before, slot, event):
                        total.add(change, literal)
            total.at_most(cp, room, condition)


def _memory(problem: Problem, slot: Slot, kind: Kind | None = None) -> MemoryChange:
    return memory_change(problem, slot.op if kind is None else slot.op._replace(kind=kind))


def _kinds(slot: Slot) -> list[tuple[Kind, Literal]]:
    """What a slot may run as, and on which condition."""
    if not slot.is_choice:
        return [(slot.op.kind, True)]
    return either(slot.split)


def _most_taken(problem: Problem, slot: Slot) -> int:
    return max(_memory(problem, slot, kind).at_start for kind, _ in _kinds(slot))


def _events(
    problem: Problem, slot: Slot, pairs: PairChoices[Slot]
) -> Iterator[tuple[int, Literal]]:
    """(memory taken at the start, on which condition) of an item, if it takes any.

    A backward that takes no time holds what it leaves, unless it is one of a pair.
    """
    for kind, condition in _kinds(slot):
        change = _memory(problem, slot, kind)
        timed = duration(problem, slot.op._replace(kind=kind))
        alone = change.at_start if timed else max(0, change.net)
        if alone:
            yield alone, condition
        if change.at_start > alone:
            for choice, _, _ in pairs.partners(slot):
                if choice.kinds[choice.both[0] is not slot] == kind:
                    yield change.at_start, choice.literal


def _changes(
    problem: Problem, before: _Before, slot: Slot, event: Slot
) -> list[tuple[int, Literal]]:
    """What a slot changes in sum if it is before the event."""
    if not slot.is_choice:
        change = _memory(problem, slot).net
        return [(change, before(slot, event))] if change else []
    fused, split = _memory(problem, slot, "BW").net, _memory(problem, slot, "B").net
    literal = before(slot, event)
    return [(fused, literal), (split - fused, conjunction(before.cp, literal, slot.split))]


class _Before(Before[Slot]):
    """The literals of one segment's slots."""

    def __init__(
        self,
        problem: Problem,
        cp: cp_model.CpModel,
        slots: Sequence[Slot],
        pairs: PairChoices[Slot],
    ) -> None:
        super().__init__(cp, pairs)
        self.position = {id(slot): n for n, slot in enumerate(slots)}
        self.previous = {
            id(after): before
            for chain in chains_of(problem, slots)
            for before, after in pairwise(chain)
            if before.present is True and after.present is True
        }
        self.earlier = _closure(problem, slots, self.previous, self.position, pairs)

    def fixed(self, x: Slot, event: Slot) -> Literal | None:
        """What the order of stage and phase and each microbatch's way say."""
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


def _closure(
    problem: Problem,
    slots: Sequence[Slot],
    previous: dict[int, Slot],
    position: dict[int, int],
    pairs: PairChoices[Slot],
) -> dict[int, int]:
    """Per slot, the bit set of positions that must come before it, where it and they exist.

    By stage and phase order, by each microbatch's way, and by what these imply.
    """
    last: dict[tuple[int, str, int], Slot] = {}
    earlier: dict[int, int] = {}
    for slot in slots:  # the present order is one of those allowed: sources come first
        bits = 0
        sources = []
        if (before := previous.get(id(slot))) is not None:
            if pairs.together(before, slot):
                bits = earlier[id(before)]  # not after it, or together with it
                before = previous.get(id(before))
            sources = [] if before is None else [before]
        op, phase, route = slot.op, slot.phase, problem.route_of[slot.op.stage]
        needed = [(route, x, op.microbatch) for x in _NEEDS[phase]]
        if phase == "W":
            needed = [(-1 - op.stage, "B", op.microbatch)]
        sources += [last[key] for key in needed if key in last]
        last[route, phase, op.microbatch] = last[-1 - op.stage, phase, op.microbatch] = slot
        for source in sources:
            bits |= earlier[id(source)] | 1 << position[id(source)]
        earlier[id(slot)] = bits
    return earlier
