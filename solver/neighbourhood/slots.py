"""The free ops of a segment, each with what it may run as: its kind, its memory mode, a pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import NamedTuple, TypeVar, cast

import numpy as np
from ortools.sat.python import cp_model

from pipesat.core.ops import PHASE_OF, Item, Kind, Op, Pair, Phase, members
from pipesat.core.problem import Problem
from pipesat.core.rules import duration, memory_in_order
from pipesat.solver.model.pairing import Gains, least_time, time_that_gains
from pipesat.solver.model.variants import (
    Candidate,
    Literal,
    PairChoices,
    Running,
    Variant,
    add_pair_choices,
    place,
    variant,
)
from pipesat.solver.modes.assign import Cell
from pipesat.solver.modes.cells import ways_of
from pipesat.solver.neighbourhood.graph import Graph
from pipesat.solver.neighbourhood.node import Node

_NEEDS: dict[Phase, tuple[Phase, ...]] = {"F": ("F",), "B": ("F", "B"), "W": ()}
"""Phases of a microbatch, on whatever chunk, that come before the next chunk's."""


@dataclass(frozen=True)
class Freedom:
    """What may change beside the order: whether backwards are split, and memory modes."""

    splits: bool = True
    modes: bool = True


@dataclass(eq=False)
class Slot(Running):
    """One free op, or a W that comes into being if a fused backward is split.

    ``op`` is what it is at present, ``item`` the number in the graph of the op, or of the pair that
    it is in (``None``: not there at present), ``backward`` the slot of its B if it is a W that
    need not exist.
    """

    op: Op
    item: int | None
    node: Node
    backward: Slot | None = None

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return PHASE_OF[self.op.kind]


Way = tuple[int, bool]
"""A mode, and whether the backward is split."""


@dataclass(frozen=True)
class Choice:
    """In which ways a (stage, microbatch) may run, and whether it does, by way.

    ``split`` says whether its backward is split, ``outside`` is the place in its row of an F that
    lies before the segment.
    """

    ways: Mapping[Way, Literal]
    split: Literal
    outside: int | None = None

    def variants(self, problem: Problem, cp: cp_model.CpModel, op: Op) -> list[Variant]:
        """Return what an op of a phase may be, each once, and what says that it is."""
        chosen: dict[Op, list[Literal]] = {}
        for (mode, split), literal in self.ways.items():
            kind: Kind = op.kind
            if PHASE_OF[op.kind] == "B":
                kind = "B" if split else "BW"
            if op.kind != "W" or split:
                chosen.setdefault(op._replace(kind=kind, mode=mode), []).append(literal)
        everywhere = len(chosen) == 1 and op.kind != "W"
        return [
            variant(problem, own, True if everywhere else any_of(cp, literals))
            for own, literals in chosen.items()
        ]


def any_of(cp: cp_model.CpModel, literals: Sequence[Literal]) -> Literal:
    """Literal for "one of these", of which at most one can hold."""
    if len(literals) == 1:
        return literals[0]
    if not literals:
        return False
    found = cp.new_bool_var("")
    cp.add(sum(literals) == found)
    return found


class Planned(NamedTuple):
    """A slot before it has variables."""

    op: Op
    item: int | None
    variants: list[Variant]
    present: Literal
    node: Node


class Otherwise(NamedTuple):
    """An F before a segment, by place in its row: how much more it holds in a way, if so chosen."""

    place: int
    more: int
    literal: Literal


S = TypeVar("S", Slot, Planned)


class Segment:
    """The free ops of one device, those at places ``[low, high)`` of its row.

    ``earlier`` and ``row`` are the graph's numbers of the items before and in it; ``planned`` are
    in the present order, and so are ``slots`` once :meth:`add_slots` has made them. ``choices`` has
    every (stage, microbatch) that may run in several ways, ``pairs`` what may run as a pair, those
    that stand included.
    """

    def __init__(
        self,
        problem: Problem,
        graph: Graph,
        cp: cp_model.CpModel,
        device: int,
        places: tuple[int, int],
        known: Gains,
        freedom: Freedom,
    ) -> None:
        self.problem, self.graph, self.cp, self.device = problem, graph, cp, device
        self.known = known
        low, high = places
        self.earlier, self.row = graph.rows[device][:low], graph.rows[device][low:high]
        self.choices = self._choices(known, freedom)
        self.planned = list(self._planned())
        self.slots: list[Slot] = []
        self.pairs: PairChoices[Slot] = PairChoices()
        self.changes = [memory_in_order(problem, item) for item in self.items(self.earlier)]
        self.otherwise = sorted(self._otherwise(), key=lambda one: one.place)
        self.first = np.zeros((len(self.planned), len(self.planned)), np.uint8)
        self.said = self.first
        for one, two in self.sequence():
            self.first[one, two] = 1

    @property
    def least_held(self) -> int:
        """What the device holds at least when the segment begins."""
        freed = sum(min(0, one.more) for one in self.otherwise)
        return sum(change.net for change in self.changes) + freed

    def _otherwise(self) -> Iterator[Otherwise]:
        for choice in self.choices.values():
            if choice.outside is None:
                continue
            ((now,),) = map(members, self.items([self.earlier[choice.outside]]))
            held = memory_in_order(self.problem, now).net
            for (mode, _), literal in choice.ways.items():
                more = memory_in_order(self.problem, now._replace(mode=mode)).net - held
                if more:
                    yield Otherwise(choice.outside, more, literal)

    def add_slots(self) -> None:
        """Create the variables, within the limits that the plan has by now."""
        cp, backwards = self.cp, dict[Cell, Slot]()
        for op, number, variants, present, node in self.planned:
            start = node.start = cp.new_int_var(node.low, max(node.low, node.last_start), "")
            if number is not None:
                cp.add_hint(start, self.graph.start[number])
            end, intervals = place(cp, start, variants, present)
            slot = Slot(start, end, intervals, variants, present, op, number, node)
            if slot.phase == "B":
                backwards[op[::2]] = slot
            elif present is not True:
                slot.backward = backwards[op[::2]]
            self.slots.append(slot)
        candidates = self._candidates()
        self.pairs = add_pair_choices(cp, candidates, self.slots, lambda slot: slot.node.high)
        for choice in self.pairs.all:
            one, other = choice.both
            stands = _stand_as_pair(one, other) and choice.ops == (one.op, other.op)
            cp.add_hint(choice.literal, stands)
        for slot in self.slots:
            slot.node.end = slot.end

    def items(self, numbers: Sequence[int]) -> list[Item]:
        """Items of the graph by their numbers."""
        return [self.graph.sequence.item[number] for number in numbers]

    def _choices(self, known: Gains, freedom: Freedom) -> dict[Cell, Choice]:
        """Return every (stage, microbatch) that may run in several ways.

        Its backward, with its W, must lie in the segment. An F before it has started and been paid
        for: it keeps its length, and what it holds from then on is counted
        (:mod:`pipesat.solver.neighbourhood.segment_memory`).
        """
        problem = self.problem
        inside = dict.fromkeys(op for item in self.items(self.row) for op in members(item))
        places = {}
        if freedom.modes and problem.has_modes:
            places = _forwards(self.items(self.earlier))
        found: dict[Cell, Choice] = {}
        for op in inside:
            if PHASE_OF[op.kind] != "B" or (op.kind == "B" and op._replace(kind="W") not in inside):
                continue
            ways = list(_ways(problem, known, op, freedom))
            outside = None
            if op._replace(kind="F") not in inside:
                outside, paired = places.get(op[::2], (None, True))
                if paired or len({problem.amounts(*op[::2], mode).F for mode, _ in ways}) > 1:
                    ways, outside = [way for way in ways if way[0] == op.mode], None
            if len(ways) > 1:
                literals = _literals(self.cp, ways, (op.mode, op.kind == "B"))
                splits = [literals[way] for way in ways if way[1]]
                split = len(splits) == len(ways) or any_of(self.cp, splits)
                found[op[::2]] = Choice(literals, split, outside)
        return found

    def _planned(self) -> Iterator[Planned]:
        items = {op: n for n in self.row for op in members(self.graph.sequence.item[n])}
        weights = {op[::2] for op in items if op.kind == "W"}
        absent = [
            Op(stage, "W", microbatch)
            for (stage, microbatch), choice in self.choices.items()
            if choice.split is not False and (stage, microbatch) not in weights
        ]
        for op, number in chain(items.items(), ((op, None) for op in absent)):
            only = Choice({(op.mode, op.kind != "BW"): True}, op.kind != "BW")
            choice = self.choices.get(op[::2], only)
            variants = choice.variants(self.problem, self.cp, op)
            present: Literal = True
            if op.kind == "W" and len(choice.ways) > 1:
                present = choice.split
            least = min(least_time(self.problem, variant.op) for variant in variants)
            last = len(self.graph.sequence.item)
            node = Node(last if number is None else number, least if present is True else 0)
            yield Planned(op, number, variants, present, node)

    def chain_of(self, op: Op) -> tuple[int, Phase, int]:
        """Name the chain of an op: slots that keep their order.

        By stage and phase, by class too where that is free. Only what is ``free`` may change places
        with another class: windows of some devices must not change an order that all stages have.
        """
        phase, free = PHASE_OF[op.kind], self.problem.order == "free" or op.kind == "W"
        return op.stage, phase, self.problem.class_of(*op[::2]) if free else 0

    def neighbours(self, slots: Iterable[S]) -> Iterator[tuple[S, S]]:
        """Yield every two neighbours of a chain."""
        last: dict[tuple[int, Phase, int], S] = {}
        for slot in slots:
            name = self.chain_of(slot.op)
            if name in last:
                yield last[name], slot
            last[name] = slot

    def _candidates(self) -> Iterator[Candidate[Slot]]:
        problem, known, slots = self.problem, self.known, self.slots
        if problem.overlap is None:
            return
        for (i, one), (j, other) in combinations(enumerate(slots), 2):
            begin = max(one.node.low, other.node.low)
            end = min(one.node.high, other.node.high)
            if begin + max(one.node.least, other.node.least) > end:
                continue
            if self.first[i, j] or self.first[j, i]:
                continue
            stand = _stand_as_pair(one, other)
            for own, partner in product(one.variants, other.variants):
                ops = own.op, partner.op
                if stand and ops == (one.op, other.op):
                    time: int | None = duration(problem, Pair(*ops))
                else:
                    time = time_that_gains(problem, known, *ops)
                if time is not None and begin + time <= end:
                    yield (one, other), ops, time

    def sequence(self) -> Iterator[tuple[int, int]]:
        """Yield places of two in the plan of which the first ends before the second starts.

        By stage and phase order, and by each microbatch's way; what these imply is left out.
        """
        last: dict[tuple[int, str, int], int] = {}
        before = {
            id(two.node): one
            for one, two in self.neighbours(self.planned)
            if one.present is True and two.present is True
        }
        place = {id(plan.node): at for at, plan in enumerate(self.planned)}
        for at, plan in enumerate(self.planned):
            op, phase = plan.op, PHASE_OF[plan.op.kind]
            one = before.get(id(plan.node))
            if one is not None and self.may_be_together(op):  # not after it, or together with it
                one = before.get(id(one.node))
            if one is not None:
                yield place[id(one.node)], at
            route = self.problem.route_of[op.stage]
            needed = [(route, x, op.microbatch) for x in _NEEDS[phase]]
            if phase == "W":
                needed = [(-1 - op.stage, "B", op.microbatch)]
            yield from ((last[key], at) for key in needed if key in last)
            last[route, phase, op.microbatch] = last[-1 - op.stage, phase, op.microbatch] = at

    def found(self) -> Iterator[tuple[Slot, Slot]]:
        """Yield what has been found to be in sequence, without what that implies."""
        sure = np.array([slot.present is True for slot in self.slots])
        first = self.first * sure[:, None]
        implied = (first.astype(np.float32) @ first.astype(np.float32)) > 0
        for i, j in zip(*np.nonzero((first > self.said) & ~implied), strict=True):
            one, two = self.slots[i], self.slots[j]
            if one.node.high > two.node.low:
                yield one, two

    def may_be_together(self, op: Op) -> bool:
        """Whether two of a chain may run as a pair."""
        kinds = [kind for kind, phase in PHASE_OF.items() if phase == PHASE_OF[op.kind]]
        overlap = self.problem.overlap
        return overlap is not None and any(
            overlap.entry((op.stage, one), (op.stage, other)) is not None
            for one, other in product(kinds, repeat=2)
        )


def _forwards(row: Sequence[Item]) -> dict[Cell, tuple[int, bool]]:
    """Where the F's of a row stand, and whether they are members of pairs."""
    return {
        op[::2]: (number, isinstance(item, Pair))
        for number, item in enumerate(row)
        for op in members(item)
        if op.kind == "F"
    }


def _ways(problem: Problem, known: Gains, op: Op, freedom: Freedom) -> Iterator[Way]:
    """Yield the ways in which a backward may run, the present one first."""
    present = op.mode, op.kind == "B"
    yield present
    any_mode = freedom.modes and problem.mode_choice == "microbatch"
    options = [(way.mode, not way.fused) for way in ways_of(problem, *op[::2], known)]
    own = [way for way in options if way[0] == op.mode]
    for way in options:
        free = any_mode if way[0] != op.mode else freedom.splits and len(own) > 1
        if free and way != present:
            yield way


def _literals(cp: cp_model.CpModel, ways: Sequence[Way], present: Way) -> dict[Way, Literal]:
    """A literal for each way; for two, one and its negation."""
    first = cp.new_bool_var("")
    cp.add_hint(first, ways[0] == present)
    if len(ways) == 2:
        return {ways[0]: first, ways[1]: cast(Literal, ~first)}
    literals = [first, *(cp.new_bool_var("") for _ in ways[1:])]
    for way, literal in zip(ways[1:], literals[1:], strict=True):
        cp.add_hint(literal, way == present)
    cp.add_exactly_one(literals)
    return dict(zip(ways, literals, strict=True))


def _stand_as_pair(one: Slot, other: Slot) -> bool:
    return one.item is not None and one.item == other.item
