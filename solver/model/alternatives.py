"""Alternatives: what an op may run as, alone in some kind and mode, or with another as a pair.

Which variant a (stage, microbatch) runs in says which ops it has, and which alternatives these.
Literals say what is chosen; they may be known beforehand. A pair has equal starts and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, cast
from typing import Literal as OneOf

from ortools.sat.python import cp_model

from pipesat.problem.ops import Event, Item, Kind, Op, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.rules import MemoryChange, duration, in_order, memory_in_order
from pipesat.problem.variants import Variant

Literal: TypeAlias = cp_model.IntVar | bool
"""A Boolean variable (or its negation), or a known truth value."""

_LEAST = -(1 << 62)


class Sum:
    """A constant plus literals with coefficients."""

    def __init__(self, constant: int) -> None:
        self.constant = constant
        self.literals: list[cp_model.IntVar] = []
        self.coefficients: list[int] = []

    def add(self, coefficient: int, literal: Literal) -> None:
        """Add a term."""
        if isinstance(literal, bool):
            self.constant += coefficient * literal
        elif coefficient:
            self.literals.append(literal)
            self.coefficients.append(coefficient)

    def add_all(self, other: Sum) -> None:
        """Add another sum."""
        self.constant += other.constant
        self.literals += other.literals
        self.coefficients += other.coefficients

    def at_most(self, cp: cp_model.CpModel, bound: int, condition: Literal) -> None:
        """Require ``sum <= bound`` wherever ``condition`` holds."""
        if sum(c for c in self.coefficients if c > 0) + self.constant <= bound:
            return
        terms = cp_model.LinearExpr.weighted_sum(self.literals, self.coefficients)
        constraint = cp.add_linear_constraint(terms, _LEAST, bound - self.constant)
        if not isinstance(condition, bool):
            constraint.only_enforce_if(condition)


def conjunction(cp: cp_model.CpModel, x: Literal, y: Literal) -> Literal:
    """Literal for "x and y"."""
    if x is False or y is False:
        return False
    if x is True or y is True:
        return y if x is True else x
    both = cp.new_bool_var("")
    cp.add_implication(both, x)
    cp.add_implication(both, y)
    cp.add_bool_or([both, ~x, ~y])
    return both


class Alternative(NamedTuple):
    """An op as which something may run, its ``length`` and memory, and whether it is ``chosen``."""

    op: Op
    length: int
    memory: MemoryChange
    chosen: Literal

    @property
    def taken(self) -> int:
        """Memory that it takes at its start, alone; what takes no time holds what it leaves."""
        return self.memory.at_start if self.length else max(0, self.memory.net)


Part: TypeAlias = OneOf["F", "B", "W", "O", "L"]
"""What a microbatch does on a stage: F, the backward (B or BW), W, and the copies."""

COPIES: Final[tuple[Part, ...]] = ("O", "L")
_NOTHING: Final = MemoryChange(0, 0)


def has(variant: Variant, part: Part) -> bool:
    """Whether a microbatch in a variant has a part."""
    if part in COPIES:
        return variant.offloads
    return part == "F" or variant.split or (part == "B" and not variant.alone)


@dataclass(eq=False)
class Choice:
    """Which variant a (stage, microbatch) runs in: a literal for each, or what is known."""

    stage: int
    microbatch: int
    chosen: Mapping[Variant, Literal]
    _known: dict[tuple[Variant, ...], Literal] = field(default_factory=dict)

    def one_of(self, cp: cp_model.CpModel, some: Iterable[Variant]) -> Literal:
        """Literal for "it runs in one of these"."""
        own = tuple(some)
        if len(own) in (0, len(self.chosen)):
            return bool(own)
        if len(own) == 1:
            return self.chosen[own[0]]
        if own not in self._known:
            literal = self._known[own] = cp.new_bool_var("")
            cp.add_exactly_one([*(self.chosen[variant] for variant in own), ~literal])
        return self._known[own]

    def present(self, cp: cp_model.CpModel, part: Part) -> Literal:
        """Literal for "it has this part"."""
        return self.one_of(cp, (variant for variant in self.chosen if has(variant, part)))

    def alternatives(
        self, cp: cp_model.CpModel, problem: Problem, part: Part, unit: int = 1
    ) -> list[Alternative]:
        """Ops as which a part may run, each once; lengths in ``unit`` time units, rounded down.

        Those of a copy are the ops that it belongs to.
        """
        found: dict[Op, list[Variant]] = {}
        for variant in self.chosen:
            if has(variant, part):
                kind: Kind = "F" if part in ("F", "O") else "W" if part == "W" else "B"
                if part == "B" and not variant.split:
                    kind = "BW"
                op = Op(self.stage, kind, self.microbatch, variant.mode)
                found.setdefault(op, []).append(variant)
        made = []
        for op, own in found.items():
            chosen = self.one_of(cp, own)
            if part in COPIES:
                length = own[0].out if part == "O" else own[0].back
                made.append(Alternative(op, length // unit, _NOTHING, chosen))
            else:
                length, memory = duration(problem, op), memory_in_order(problem, op)
                made.append(Alternative(op, length // unit, memory, chosen))
        return made


def choice_of(
    cp: cp_model.CpModel,
    stage: int,
    microbatch: int,
    variants: Sequence[Variant],
    now: Variant | None = None,
) -> Choice:
    """Create the literals of a choice among some variants; the present one is a hint."""
    literals: list[Literal] = [True]
    if len(variants) == 2:
        literal = cp.new_bool_var("")
        literals = [literal, cast(Literal, ~literal)]
    elif len(variants) > 2:
        literals = [cp.new_bool_var("") for _ in variants]
        cp.add_exactly_one(literals)
    chosen = dict(zip(variants, literals, strict=True))
    if now is not None and len(variants) > 1:
        for variant in variants if len(variants) > 2 else variants[:1]:
            cp.add_hint(cast(cp_model.IntVar, chosen[variant]), variant == now)
    return Choice(stage, microbatch, chosen)


@dataclass(eq=False, kw_only=True)
class Running:
    """What runs: as what it may run, its start and end, and the intervals that it may occupy.

    ``present`` says whether it exists: False, or a literal, where a W may be absent because its
    backward is fused, or a copy because nothing is offloaded.
    """

    alternatives: list[Alternative]
    present: Literal
    start: cp_model.IntVar = field(init=False)
    end: cp_model.LinearExpr = field(init=False)
    intervals: list[cp_model.IntervalVar] = field(init=False)

    def begin(self, cp: cp_model.CpModel, start: cp_model.IntVar) -> None:
        """Let it start there, which says its end and its intervals.

        One that is absent and has one length ends as if it were there; of several lengths, at once.
        """
        self.start, present = start, self.present
        lengths = {one.length for one in self.alternatives}
        if len(lengths) == 1:
            (length,) = lengths
            self.end = start + length
            if present is True:
                self.intervals = [cp.new_fixed_size_interval_var(start, length, "")]
            else:
                optional = cp.new_optional_fixed_size_interval_var(start, length, present, "")
                self.intervals = [optional]
            return
        self.intervals = [
            cp.new_optional_fixed_size_interval_var(start, one.length, one.chosen, "")
            for one in self.alternatives
        ]
        last = self.alternatives[-1].length if present is True else 0
        self.end = start + last
        for one in self.alternatives:
            if one.length != last:
                self.end = self.end + (one.length - last) * one.chosen


R = TypeVar("R", bound=Running)


def joined(problem: Problem, row: Iterable[Op], partner: Mapping[Event, Event]) -> tuple[Item, ...]:
    """Return a device's row with every two partners as one item, where the first of them stands."""
    items: dict[Event, Item] = {}
    for op in row:
        other = partner.get(op.event)
        if other in items:
            items[other] = in_order(problem, Pair(cast(Op, items[other]), op))
        else:
            items[op.event] = op
    return tuple(items.values())


Candidate: TypeAlias = tuple[tuple[R, R], tuple[Op, Op], int]
"""Two that may run as one: as which ops, and how long."""


@dataclass
class PairChoice(Generic[R]):
    """A candidate with its literal."""

    both: tuple[R, R]
    ops: tuple[Op, Op]
    time: int
    literal: cp_model.IntVar

    def runs(self, x: R) -> Op:
        """The op as which a member runs."""
        return self.ops[self.both[0] is not x]


@dataclass
class PairChoices(Generic[R]):
    """All choices, by the identity of one or of both members."""

    all: list[PairChoice[R]] = field(default_factory=list)
    _of_two: dict[tuple[int, int], list[PairChoice[R]]] = field(default_factory=dict)
    _of_one: dict[int, list[tuple[PairChoice[R], R, Op]]] = field(default_factory=dict)

    def add(self, choice: PairChoice[R]) -> None:
        """Take in a choice."""
        self.all.append(choice)
        (a, b), (op, other) = choice.both, choice.ops
        for x, y in ((a, b), (b, a)):
            self._of_two.setdefault((id(x), id(y)), []).append(choice)
        self._of_one.setdefault(id(a), []).append((choice, b, other))
        self._of_one.setdefault(id(b), []).append((choice, a, op))

    def together(self, x: R, y: R) -> list[cp_model.IntVar]:
        """Literals of which one holds if and only if the two run as one."""
        return [choice.literal for choice in self._of_two.get((id(x), id(y)), ())]

    def partners(self, x: R) -> list[tuple[PairChoice[R], R, Op]]:
        """Every choice of x, with its partner and the op that the partner is in it."""
        return self._of_one.get(id(x), [])

    def end_of(self, x: R, length: int) -> cp_model.LinearExpr:
        """End of x in a variant in which it has this length alone."""
        return x.end if self.partners(x) else x.start + length

    def saved(
        self, stages: Collection[int], length: Callable[[Op], int]
    ) -> list[cp_model.LinearExpr]:
        """What each pair of these stages takes more than its ops, if it is chosen: mostly less."""
        own = (choice for choice in self.all if choice.ops[0].stage in stages)
        return [(one.time - sum(map(length, one.ops))) * one.literal for one in own]

    def found(
        self, value: Callable[[cp_model.IntVar], int], name: Callable[[R], Event]
    ) -> dict[Event, Event]:
        """The partner of each member of the pairs in a solution, by name."""
        chosen = [map(name, choice.both) for choice in self.all if value(choice.literal)]
        return {one: other for both in chosen for one, other in permutations(both)}


def add_pair_choices(
    cp: cp_model.CpModel,
    candidates: Iterable[Candidate[R]],
    running: Iterable[R],
    latest: Callable[[R], int],
) -> PairChoices[R]:
    """Create the literals; give those that may pair an end variable and their intervals anew.

    ``latest`` says when one has ended. Each runs as exactly one of its alternatives, alone or in
    one of its choices of the same op; with none chosen it takes no time.
    """
    choices: PairChoices[R] = PairChoices()
    for candidate in candidates:
        choices.add(PairChoice(*candidate, cp.new_bool_var("")))
    for x in running:
        if partners := choices.partners(x):
            of_op: dict[Op, list[PairChoice[R]]] = {one.op: [] for one in x.alternatives}
            for choice, _, _ in partners:
                of_op[choice.runs(x)].append(choice)
            _give_choices(cp, x, of_op, latest(x))
    for choice in choices.all:
        one, other = choice.both
        cp.add(one.start == other.start).only_enforce_if(choice.literal)
        interval = cp.new_optional_fixed_size_interval_var(
            one.start, choice.time, choice.literal, ""
        )
        one.intervals.append(interval)
    return choices


def _give_choices(
    cp: cp_model.CpModel, x: R, paired: dict[Op, list[PairChoice[R]]], latest: int
) -> None:
    end = cp.new_int_var(0, latest, "")
    x.intervals = []
    x.end = end
    lengths = [one.length for one in x.alternatives]
    for op, length, _, chosen in x.alternatives:
        alone = cp.new_bool_var("")
        literals: list[cp_model.LiteralT] = [alone, *(c.literal for c in paired[op])]
        if chosen is not True:
            literals.append(~chosen)
        cp.add_exactly_one(literals)
        cp.add(end == x.start + length).only_enforce_if(alone)
        x.intervals.append(cp.new_optional_fixed_size_interval_var(x.start, length, alone, ""))
        for choice in paired[op]:
            lengths.append(choice.time)
            cp.add(end == x.start + choice.time).only_enforce_if(choice.literal)
    if x.present is not True:
        cp.add(end == x.start).only_enforce_if(~x.present)
        lengths.append(0)
    cp.add(end >= x.start + min(lengths))
    cp.add(end <= x.start + max(lengths))
