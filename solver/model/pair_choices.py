"""Whether two ops run as one: a literal per candidate, with equal starts and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from ortools.sat.python import cp_model

from pipesat.core.ops import Event, Item, Kind, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order
from pipesat.solver.model.literals import Literal


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


class Running(Protocol):
    """What runs: its start and end, and the intervals that it may occupy."""

    start: cp_model.IntVar
    end: cp_model.LinearExpr
    intervals: list[cp_model.IntervalVar]


R = TypeVar("R", bound=Running)


class Form(NamedTuple):
    """A kind that something may run as, alone: how long then, and whether it is of this kind."""

    kind: Kind
    length: int
    chosen: Literal


@dataclass
class Candidate(Generic[R]):
    """Two that may run as one: as which kinds, and how long."""

    both: tuple[R, R]
    kinds: tuple[Kind, Kind]
    time: int


@dataclass
class PairChoice(Generic[R]):
    """A candidate with its literal."""

    both: tuple[R, R]
    kinds: tuple[Kind, Kind]
    time: int
    literal: cp_model.IntVar


@dataclass
class PairChoices(Generic[R]):
    """All choices, by the identity of one or of both members."""

    all: list[PairChoice[R]] = field(default_factory=list)
    _of_two: dict[tuple[int, int], list[PairChoice[R]]] = field(default_factory=dict)
    _of_one: dict[int, list[tuple[PairChoice[R], R, Kind]]] = field(default_factory=dict)

    def add(self, choice: PairChoice[R]) -> None:
        """Take in a choice."""
        self.all.append(choice)
        (a, b), (kind, other) = choice.both, choice.kinds
        for x, y in ((a, b), (b, a)):
            self._of_two.setdefault((id(x), id(y)), []).append(choice)
        self._of_one.setdefault(id(a), []).append((choice, b, other))
        self._of_one.setdefault(id(b), []).append((choice, a, kind))

    def together(self, x: R, y: R) -> list[cp_model.IntVar]:
        """Literals of which one holds if and only if the two run as one."""
        return [choice.literal for choice in self._of_two.get((id(x), id(y)), ())]

    def partners(self, x: R) -> list[tuple[PairChoice[R], R, Kind]]:
        """Every choice of x, with its partner and the partner's kind in it."""
        return self._of_one.get(id(x), [])


def add_pair_choices(
    cp: cp_model.CpModel,
    candidates: Iterable[Candidate[R]],
    forms: Iterable[tuple[R, Sequence[Form]]],
    latest: int,
) -> PairChoices[R]:
    """Create the literals; give those that may pair an end variable and their intervals anew.

    ``forms`` has what each may run as, alone: exactly one of these, or of its choices of the same
    kind, if that kind is chosen; with no kind chosen it takes no time.
    """
    choices: PairChoices[R] = PairChoices()
    for candidate in candidates:
        literal = cp.new_bool_var("")
        choices.add(PairChoice(candidate.both, candidate.kinds, candidate.time, literal))
    for x, kinds in forms:
        if partners := choices.partners(x):
            of_kind: dict[Kind, list[PairChoice[R]]] = {form.kind: [] for form in kinds}
            for choice, other, _ in partners:
                of_kind[choice.kinds[choice.both[0] is other]].append(choice)
            _give_forms(cp, x, kinds, of_kind, latest)
    for choice in choices.all:
        one, other = choice.both
        cp.add(one.start == other.start).only_enforce_if(choice.literal)
        interval = cp.new_optional_interval_var(one.start, choice.time, one.end, choice.literal, "")
        one.intervals.append(interval)
    return choices


def _give_forms(
    cp: cp_model.CpModel,
    x: Running,
    forms: Sequence[Form],
    paired: dict[Kind, list[PairChoice[R]]],
    latest: int,
) -> None:
    end = cp.new_int_var(0, latest, "")
    x.intervals = []
    x.end = end
    lengths = [form.length for form in forms]
    for form in forms:
        alone = cp.new_bool_var("")
        literals: list[cp_model.LiteralT] = [alone, *(c.literal for c in paired[form.kind])]
        if form.chosen is not True:
            literals.append(~form.chosen)
        cp.add_exactly_one(literals)
        x.intervals.append(cp.new_optional_interval_var(x.start, form.length, end, alone, ""))
        for choice in paired[form.kind]:
            lengths.append(choice.time)
            cp.add(end == x.start + choice.time).only_enforce_if(choice.literal)
    if len(forms) == 1 and forms[0].chosen is not True:
        cp.add(end == x.start).only_enforce_if(~forms[0].chosen)
        lengths.append(0)
    cp.add(end >= x.start + min(lengths))
    cp.add(end <= x.start + max(lengths))
