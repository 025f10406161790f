"""The free ops of a segment, each with what it may run as, and the free copies of its channels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from pipesat.problem.ops import PHASE_OF, Item, Kind, Op, Pair, Phase, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, memory_in_order, waits_for
from pipesat.problem.variants import Key, Variant, variant_of
from pipesat.solver.model.alternatives import (
    COPIES,
    Candidate,
    Choice,
    Literal,
    PairChoices,
    Part,
    Running,
    add_pair_choices,
    choice_of,
)
from pipesat.solver.model.pairing import Gains, least_time, time_that_gains, useful_variants
from pipesat.solver.model.turns import kind_of
from pipesat.solver.windows.graph import Done, Graph, channel_of
from pipesat.solver.windows.node import Node

_NEEDS: dict[Phase, tuple[Phase, ...]] = {"F": ("F",), "B": ("F", "B"), "W": ()}
"""Phases of a microbatch, on whatever chunk, that come before the next chunk's."""


@dataclass(frozen=True)
class Freedom:
    """What may change beside the order: whether backwards are split, and memory modes."""

    splits: bool = True
    modes: bool = True


@dataclass(eq=False, kw_only=True)
class Slot(Running, Node):
    """One free op or copy, or a W or copy that comes into being in another variant.

    ``done`` is what it completes, ``op`` what it is at present (of a copy what it belongs to),
    ``item`` the number in the graph of the op, of the pair that it is in, or of the copy (``None``:
    not there at present).
    """

    done: Done
    op: Op
    item: int | None


class Otherwise(NamedTuple):
    """An F before a segment, by place in its row or by time: how much more it holds if chosen."""

    since: int
    more: int
    literal: Literal


class FreeRow:
    """The free items of one row of a graph, those at places ``[low, high)``.

    ``earlier`` and ``row`` are the graph's numbers of the items before and in it, ``after`` that of
    the next one. ``slots`` are in the present order; they have variables once :meth:`add_variables`
    has made them. ``pairs`` is what may run as a pair.
    """

    slack: int | None = None

    def __init__(
        self, graph: Graph, cp: cp_model.CpModel, number: int, places: tuple[int, int]
    ) -> None:
        self.graph, self.cp, self.number = graph, cp, number
        (low, high), row = places, graph.rows[number]
        self.earlier, self.row = row[:low], row[low:high]
        self.after = row[high] if high < len(row) else None
        self.slots: list[Slot] = []
        self.pairs: PairChoices[Slot] = PairChoices()

    @property
    def before(self) -> int:
        """Number of the item before it, -1 without one."""
        return self.earlier[-1] if self.earlier else -1

    @property
    def least_held(self) -> int:
        """What is held at least when it begins."""
        return 0

    def slot(self, problem: Problem, choice: Choice, part: Part, op: Op, item: int | None) -> Slot:
        """A part of a (stage, microbatch)."""
        alternatives = choice.alternatives(self.cp, problem, part)
        present = choice.present(self.cp, part)
        if part in COPIES:
            least = min(one.length for one in alternatives)
        else:
            least = min(least_time(problem, one.op) for one in alternatives)
        return Slot(
            place=len(self.graph.start) if item is None else item,
            least=least if present is True else 0,
            alternatives=alternatives,
            present=present,
            done=(op.stage, part, op.microbatch),
            op=op,
            item=item,
        )

    def set_known(self) -> None:
        """Note which of two ends before the other starts, as far as that is sure."""
        self.first = np.zeros((len(self.slots), len(self.slots)), np.uint8)
        self.said = self.first
        for one, two in self.sequence():
            self.first[one, two] = 1

    def sequence(self) -> Iterator[tuple[int, int]]:
        """Yield places of two slots of which the first ends before the second starts."""
        place = {id(slot): at for at, slot in enumerate(self.slots)}
        for one, two in self.neighbours():
            yield place[id(one)], place[id(two)]

    def chain_of(self, slot: Slot) -> tuple[object, ...]:
        """Name what keeps its order: copies in one direction do."""
        return (slot.done[1],)

    def neighbours(self) -> Iterator[tuple[Slot, Slot]]:
        """Yield every two neighbours of a chain that are there, whatever is chosen."""
        last: dict[tuple[object, ...], Slot] = {}
        for slot in self.slots:
            name = self.chain_of(slot)
            if name in last and last[name].present is True and slot.present is True:
                yield last[name], slot
            last[name] = slot

    def may_be_together(self, op: Op) -> bool:  # noqa: ARG002
        """Whether two of a chain may run as a pair."""
        return False

    def add_variables(self) -> None:
        """Create the variables, within the limits that are known by now."""
        cp = self.cp
        for slot in self.slots:
            slot.begin(cp, cp.new_int_var(slot.low, max(slot.low, slot.last_start), ""))
            if slot.item is not None:
                cp.add_hint(slot.start, self.graph.start[slot.item])
        candidates = self.candidates()
        self.pairs = add_pair_choices(cp, candidates, self.slots, lambda slot: slot.high)
        for slot in self.slots:  # of what may pair, the end has the limit; an absent one needs none
            limited = slot.present is True and not self.pairs.partners(slot)
            for alone in slot.alternatives if limited else []:
                if alone.length > slot.least:
                    cp.add(slot.start + alone.length <= slot.high).only_enforce_if(alone.chosen)
        for choice in self.pairs.all:
            one, other = choice.both
            stands = _stand_as_pair(one, other) and choice.ops == (one.op, other.op)
            cp.add_hint(choice.literal, stands)

    def found(self) -> Iterator[tuple[Slot, Slot]]:
        """Yield what has been found to be in sequence, without what that implies."""
        sure = np.array([slot.present is True for slot in self.slots])
        first = self.first * sure[:, None]
        implied = (first.astype(np.float32) @ first.astype(np.float32)) > 0
        for i, j in zip(*np.nonzero((first > self.said) & ~implied), strict=True):
            one, two = self.slots[i], self.slots[j]
            if one.high > two.low:
                yield one, two

    def candidates(self) -> Iterator[Candidate[Slot]]:
        """Yield what may run as a pair."""
        yield from ()


class Segment(FreeRow):
    """The free ops of one device.

    ``choices`` has every (stage, microbatch) that may run in several variants, ``outside`` the
    places of those F's of them that lie before the segment. ``copied`` are those offloaded ones
    whose copy out is free as well: the others have begun to be copied, and keep their mode.
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
        copied: Collection[Key] = (),
    ) -> None:
        super().__init__(graph, cp, device, places)
        self.problem, self.device, self.known = problem, device, known
        self.slack = problem.devices[device].slack
        self.outside: dict[Key, int] = {}
        self.choices = self._choices(freedom, copied)
        self.slots = list(self._slots())
        self.changes = [memory_in_order(problem, item) for item in self.items(self.earlier)]
        self.otherwise = sorted(self._otherwise(), key=lambda one: one.since)
        self.set_known()

    @property
    def may_copy(self) -> bool:
        """Whether what is held depends on times."""
        stages = (self.problem.stages[stage] for stage in self.problem.stages_on[self.device])
        return any(mode.offload is not None for stage in stages for mode in stage.modes)

    @property
    def least_held(self) -> int:
        """What the device holds at least when the segment begins."""
        freed = sum(min(0, one.more) for one in self.otherwise)
        return sum(change.net for change in self.changes) + freed

    def _otherwise(self) -> Iterator[Otherwise]:
        for key, at in self.outside.items():
            ((now,),) = map(members, self.items([self.earlier[at]]))
            held = memory_in_order(self.problem, now).net
            for variant, literal in self.choices[key].chosen.items():
                more = memory_in_order(self.problem, now._replace(mode=variant.mode)).net - held
                if more:
                    yield Otherwise(at, more, literal)

    def items(self, numbers: Sequence[int]) -> list[Item]:
        """Items of the graph by their numbers."""
        return [self.graph.sequence.item[number] for number in numbers]

    def _choices(self, freedom: Freedom, copied: Collection[Key]) -> dict[Key, Choice]:
        """Return every (stage, microbatch) that may run in several variants.

        Its backward, with its W, must lie in the segment. An F before it has started and been paid
        for: it keeps its length, and what it holds from then on is counted
        (:mod:`pipesat.solver.windows.segment_memory`).
        """
        problem = self.problem
        inside = dict.fromkeys(op for item in self.items(self.row) for op in members(item))
        places = {}
        if freedom.modes and problem.has_modes:
            places = _forwards(self.items(self.earlier))
        found: dict[Key, Choice] = {}
        for op in inside:
            if PHASE_OF[op.kind] != "B" or (op.kind == "B" and op._replace(kind="W") not in inside):
                continue
            key, now = op[::2], now_of(problem, op)
            own = list(self._free_variants(op, now, freedom))
            outside, paired = places.get(key, (None, True))
            before = op._replace(kind="F") not in inside
            moved = before and (paired or len({variant.forward for variant in own}) > 1)
            if moved or (now.offloads and key not in copied):
                own = [variant for variant in own if variant.mode == op.mode]
            if len(own) > 1:
                found[key] = choice_of(self.cp, *key, own, now)
                if before and outside is not None and not moved:
                    self.outside[key] = outside
        return found

    def _free_variants(self, op: Op, now: Variant, freedom: Freedom) -> Iterator[Variant]:
        """Yield the variants in which a backward may run, the present one first."""
        yield now
        any_mode = freedom.modes and self.problem.mode_choice == "microbatch"
        of_class = self.problem.class_of(*op[::2])
        for variant in useful_variants(self.problem, op.stage, of_class, self.known):
            free = any_mode if variant.mode != op.mode else freedom.splits
            if free and variant != now:
                yield variant

    def _slots(self) -> Iterator[Slot]:
        items = {op: n for n in self.row for op in members(self.graph.sequence.item[n])}
        weights = {op[::2] for op in items if op.kind == "W"}
        absent = [
            Op(stage, "W", microbatch)
            for (stage, microbatch), choice in self.choices.items()
            if choice.present(self.cp, "W") is not False and (stage, microbatch) not in weights
        ]
        for op, number in chain(items.items(), ((op, None) for op in absent)):
            choice = self.choices.get(op[::2]) or fixed(self.problem, op)
            yield self.slot(self.problem, choice, PHASE_OF[op.kind], op, number)

    def chain_of(self, slot: Slot) -> tuple[object, ...]:
        """Name the chain of an op: slots that keep their order.

        By stage and phase, by class too where that is free. Only what is ``free`` may change places
        with another class: windows of some devices must not change an order that all stages have.
        """
        op = slot.op
        phase, free = PHASE_OF[op.kind], self.problem.order == "free" or op.kind == "W"
        route = self.problem.route(op.stage)
        if not free and route.classes is not None:
            return op.stage, phase, 0
        return op.stage, phase, kind_of(route, op.microbatch)

    def candidates(self) -> Iterator[Candidate[Slot]]:
        """Yield what may run as a pair."""
        problem, known, slots = self.problem, self.known, self.slots
        if problem.overlap is None:
            return
        for (i, one), (j, other) in combinations(enumerate(slots), 2):
            begin = max(one.low, other.low)
            end = min(one.high, other.high)
            if begin + max(one.least, other.least) > end:
                continue
            if self.first[i, j] or self.first[j, i]:
                continue
            stand = _stand_as_pair(one, other)
            for own, partner in product(one.alternatives, other.alternatives):
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
        before = {id(two): one for one, two in self.neighbours()}
        place = {id(plan): at for at, plan in enumerate(self.slots)}
        for at, plan in enumerate(self.slots):
            op, phase = plan.op, PHASE_OF[plan.op.kind]
            one = before.get(id(plan))
            if one is not None and self.may_be_together(op):  # not after it, or together with it
                one = before.get(id(one))
            if one is not None:
                yield place[id(one)], at
            route = self.problem.route_of[op.stage]
            needed = [(route, x, op.microbatch) for x in _NEEDS[phase]]
            if phase == "W":
                needed = [(-1 - op.stage, "B", op.microbatch)]
            for key in needed:
                if key in last and self._surely_later(op, self.slots[last[key]].op):
                    yield last[key], at
            last[route, phase, op.microbatch] = last[-1 - op.stage, phase, op.microbatch] = at

    def _surely_later(self, op: Op, other: Op) -> bool:
        """Whether one of two of a microbatch comes after the other; of a graph not all do."""
        return self.problem.chains_only or waits_for(self.problem, op, other)

    def may_be_together(self, op: Op) -> bool:
        """Whether two of a chain may run as a pair."""
        kinds = [kind for kind, phase in PHASE_OF.items() if phase == PHASE_OF[op.kind]]
        overlap = self.problem.overlap
        return overlap is not None and any(
            overlap.entry((op.stage, one), (op.stage, other)) is not None
            for one, other in product(kinds, repeat=2)
        )


class CopyRow(FreeRow):
    """The free copies of one channel, and those that may come into being."""

    def __init__(
        self, graph: Graph, number: int, places: tuple[int, int], segment: Segment
    ) -> None:
        super().__init__(graph, segment.cp, number, places)
        problem, copies = segment.problem, graph.sequence.copies
        for item in self.row:
            copy = copies[item]
            key = copy.stage, copy.microbatch
            (op,) = (op for op in members(graph.sequence.item[item]) if op[::2] == key)
            choice = segment.choices.get(key) or fixed(problem, op)
            self.slots.append(self.slot(problem, choice, copy.kind, op, item))
        for part, (key, choice) in product(COPIES, segment.choices.items()):
            own = channel_of(problem, segment.device, part) == number
            own = own and (key[0], part, key[1]) not in graph.number
            if own and choice.present(self.cp, part) is not False:
                kind: Kind = "F" if part == "O" else "B"
                self.slots.append(self.slot(problem, choice, part, Op(key[0], kind, key[1]), None))
        self.set_known()


def now_of(problem: Problem, op: Op) -> Variant:
    """Return the variant of an op's (stage, microbatch), if it is no BW the split one."""
    amounts = problem.amounts(op.stage, op.microbatch, op.mode)
    return variant_of(amounts, op.mode, split=op.kind != "BW")


def fixed(problem: Problem, op: Op) -> Choice:
    """No choice: what an op runs as at present."""
    return Choice(*op[::2], {now_of(problem, op): True})


def _forwards(row: Sequence[Item]) -> dict[Key, tuple[int, bool]]:
    """Where the F's of a row stand, and whether they are members of pairs."""
    return {
        op[::2]: (number, isinstance(item, Pair))
        for number, item in enumerate(row)
        for op in members(item)
        if op.kind == "F"
    }


def _stand_as_pair(one: Slot, other: Slot) -> bool:
    return one.item is not None and one.item == other.item
