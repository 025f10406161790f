"""One (stage, microbatch) where memory counts over time: its ways, its parts, when and as what.

A way is a mode, and whether the backward is split or fused. A schedule is read into the starts of
all parts, and put together from them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias, cast
from typing import Literal as OneOf

from ortools.sat.python import cp_model

from pipesat.core.ops import PHASE_OF, Copy, Kind, Op, Pair, Phase
from pipesat.core.problem import Problem, Stage
from pipesat.core.rules import MemoryChange, in_order
from pipesat.core.schedule import Objective, Schedule, Timed, TimedCopy
from pipesat.solver.model.pairing import NO_GAINS, Gains, fusing_may_pay
from pipesat.solver.model.variants import Literal, Running, Variant, variant
from pipesat.solver.modes.assign import Cell as Key

Part: TypeAlias = OneOf["F", "B", "W", "O", "L"]
"""What starts: F, the backward (B or BW), W, and the copies."""


TRIP: Final[tuple[Part, ...]] = ("F", "O", "L", "B")
"""What an offloaded microbatch runs one after the other."""

OPS: Final[tuple[Phase, ...]] = ("F", "B", "W")
COPIES: Final[tuple[Part, ...]] = ("O", "L")
_NOTHING: Final = MemoryChange(0, 0)


class Holding(NamedTuple):
    """``amount`` is held from a part's start plus ``offset`` to another's start plus ``length``."""

    begin: Part
    offset: int
    end: Part
    length: int
    amount: int


@dataclass(frozen=True)
class Way:
    """A mode with its amounts; ``fused``: B and W run as BW."""

    mode: int
    fused: bool
    amounts: Stage

    @cached_property
    def lengths(self) -> Mapping[Part, int]:
        """Time of each part that it has."""
        s = self.amounts
        found: dict[Part, int] = {"F": s.F, "B": s.BW if self.fused else s.B}
        if not self.fused:
            found["W"] = s.W
        if s.offload is not None:
            found |= {"O": s.offload.time_out, "L": s.offload.time_in}
        return found

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        """What is held when; nothing of amount 0."""
        s, a, length = self.amounts, self.amounts.held_after_F, self.lengths
        after = 0 if self.fused else s.held_after_B
        most = max(a, s.held_in_backward, after)  # while B or BW runs
        copied = 0 if s.offload is None else a - s.offload.held  # free between the copies
        found = [
            Holding("F", 0, "B", length["B"], a - copied),
            Holding("B", 0, "B", length["B"], most - a),
            Holding("B", length["B"], "W", length.get("W", 0), after),
        ]
        if s.offload is not None:
            found.append(Holding("F", 0, "O", length["O"], copied))
            found.append(Holding("L", 0, "B", length["B"], copied))
        return tuple(holding for holding in found if holding.amount)

    @property
    def work(self) -> int:
        """Compute time of F and the whole backward."""
        return sum(self.lengths.get(part, 0) for part in OPS)


def ways_of(
    problem: Problem, stage: int, microbatch: int, known: Gains = NO_GAINS
) -> Iterator[Way]:
    """Yield the ways; fused ones only where splitting does not dominate them.

    ``known`` are the pairs that gain something: a BW may be fused for one.
    """
    kind = problem.class_of(stage, microbatch)
    for mode in problem.modes_of(stage):
        amounts = problem.amounts(stage, microbatch, mode)
        if amounts.may_split:
            yield Way(mode, fused=False, amounts=amounts)
        if fusing_may_pay(problem, known, stage, kind, mode):
            yield Way(mode, fused=True, amounts=amounts)


@dataclass(eq=False)
class Task(Running):
    """One part; a copy's variants are the ops that it belongs to.

    ``fixed`` is its start where it cannot change.
    """

    fixed: int | None = None


class Option(NamedTuple):
    """A way, and whether it is the one."""

    way: Way
    chosen: Literal


@dataclass(eq=False)
class Cell:
    """Ways and tasks of one (stage, microbatch): O, L and W are there if some way has them."""

    stage: int
    microbatch: int
    ways: list[Option]
    tasks: dict[Part, Task] = field(default_factory=dict)

    def runs_in(self, mode: int) -> cp_model.LinearExprT:
        """Whether it runs in a mode, as a sum."""
        return sum(chosen for way, chosen in self.ways if way.mode == mode)


def variants_of(
    cp: cp_model.CpModel, problem: Problem, cell: Cell
) -> Iterator[tuple[Part, list[Variant], Literal]]:
    """Yield every part that some way has, what it may run as, and whether it is there."""
    stage, m = cell.stage, cell.microbatch
    in_mode = _in_modes(cp, cell.ways)
    found: dict[Part, list[Variant]] = {
        "F": [variant(problem, Op(stage, "F", m, mode), chosen) for mode, chosen in in_mode.items()]
    }
    for part in ("B", "W"):
        found[part] = [
            variant(problem, Op(stage, "BW" if way.fused else part, m, way.mode), chosen)
            for way, chosen in cell.ways
            if part == "B" or not way.fused
        ]
    for mode, chosen in in_mode.items():
        if (offload := problem.amounts(stage, m, mode).offload) is not None:
            out = Variant(Op(stage, "F", m, mode), offload.time_out, _NOTHING, chosen)
            back = Variant(Op(stage, "B", m, mode), offload.time_in, _NOTHING, chosen)
            found.setdefault("O", []).append(out)
            found.setdefault("L", []).append(back)
    for part, variants in found.items():
        ways = len(cell.ways) if part in ("B", "W") else len(in_mode)
        if variants:
            yield part, variants, _present(cp, variants, ways)


def _present(cp: cp_model.CpModel, variants: Sequence[Variant], ways: int) -> Literal:
    """Literal of a part; one that fewer variants have than there are ways may be absent."""
    if len(variants) == ways:
        return True
    present = cp.new_bool_var("")
    cp.add_exactly_one([*(variant.chosen for variant in variants), ~present])
    return present


def _in_modes(cp: cp_model.CpModel, ways: Sequence[Option]) -> Mapping[int, Literal]:
    """Literal for each mode; its way's where it has one."""
    found: dict[int, Literal] = {}
    for mode in dict.fromkeys(way.mode for way, _ in ways):
        own = [chosen for way, chosen in ways if way.mode == mode]
        found[mode] = own[0]
        if len(own) > 1:
            literal = found[mode] = cp.new_bool_var("")
            cp.add_exactly_one([*own, ~literal])
    return found


class State:
    """A checked schedule without pairs, by (stage, microbatch).

    ``starts`` are those of its parts, ``way`` is the way in which it runs; ``value`` is the
    schedule's objective.
    """

    def __init__(
        self, problem: Problem, schedule: Schedule, objective: Objective = "makespan"
    ) -> None:
        self.problem, self.schedule, self.objective = problem, schedule, objective
        self.value = schedule.value(objective)
        self.starts: dict[Key, dict[Part, int]] = defaultdict(dict)
        self.way: dict[Key, Way] = {}
        for _, (op, start, _) in schedule:
            if isinstance(op, Op):
                self.starts[op[::2]][PHASE_OF[op.kind]] = start
                if op.kind in ("B", "BW"):
                    amounts = problem.amounts(*op[::2], op.mode)
                    self.way[op[::2]] = Way(op.mode, op.kind == "BW", amounts)
        for row in schedule.copies:
            for copy, start, _ in row:
                if isinstance(copy, Copy):
                    self.starts[copy.stage, copy.microbatch][copy.kind] = start


def schedule_from(
    problem: Problem,
    starts: dict[Key, dict[Part, int]],
    ways: dict[Key, Way],
    source: str,
    pairs: Iterable[tuple[tuple[Op, Op], int]] = (),
    rank: Mapping[Key, int] | None = None,
) -> Schedule:
    """Put a schedule together from the starts of all parts; those of absent ones are passed over.

    At one instant, what takes no time comes first, then what comes first in a microbatch, then
    what is first by ``rank`` (by number, without). ``pairs`` have ops and times.
    """
    paired = {op: (ops, time) for ops, time in pairs for op in ops}
    rows: list[list[tuple[Op, int, int]]] = [[] for _ in problem.devices]
    copies: list[list[tuple[Copy, int, int]]] = [[] for _ in problem.devices]
    for (stage, m), found in starts.items():
        way, device = ways[stage, m], problem.stages[stage].device
        for part, length in way.lengths.items():
            start = found[part]
            if part in {"O", "L"}:
                copy = Copy(stage, part, m)
                copies[device].append((copy, start, start + length))
            else:
                kind = "BW" if part == "B" and way.fused else cast(Kind, part)
                op = Op(stage, kind, m, way.mode)
                _, time = paired.get(op, (None, length))
                rows[device].append((op, start, start + time))

    def key(timed: tuple[Op, int, int]) -> tuple[int, ...]:
        op, start, end = timed
        phase = "FBW".index(PHASE_OF[op.kind])
        place = problem.place_of[op.stage]
        number = op.microbatch if rank is None else rank[op.stage, op.microbatch]
        return start, end, phase, -place if phase else place, number

    def items(row: list[tuple[Op, int, int]]) -> Iterator[Timed]:
        for op, start, end in sorted(row, key=key):
            if op not in paired:
                yield Timed(op, start, end)
            elif op == paired[op][0][0]:
                yield Timed(in_order(problem, Pair(*paired[op][0])), start, end)

    for own in copies:
        own.sort(key=lambda x: (x[1], x[2], x[0].kind == "L"))
    timed_copies = tuple(tuple(TimedCopy(*timed) for timed in own) for own in copies)
    return Schedule(
        tuple(tuple(items(row)) for row in rows),
        source,
        timed_copies if any(copies) else (),
    )
