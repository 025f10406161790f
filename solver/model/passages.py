"""Passages: one microbatch on one stage where memory counts over time: its parts, when and as what.

A schedule is put together from the starts of all parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from ortools.sat.python import cp_model

from pipesat.core.ops import PHASE_OF, Copy, Kind, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order
from pipesat.core.schedule import Schedule, Timed, TimedCopy
from pipesat.core.variants import Variant
from pipesat.solver.growth.assign import Key
from pipesat.solver.model.alternatives import COPIES, OPS, Choice, Literal, Part, Running, has


def lengths(variant: Variant) -> dict[Part, int]:
    """Time of each part that a variant has."""
    times = variant.forward, variant.backward, variant.weight, variant.out, variant.back
    parts = zip((*OPS, *COPIES), times, strict=True)
    return {part: time for part, time in parts if has(variant, part)}


class Holding(NamedTuple):
    """``amount`` is held from a part's start plus ``offset`` to another's start plus ``length``."""

    begin: Part
    offset: int
    end: Part
    length: int
    amount: int


def holdings(variant: Variant) -> list[Holding]:
    """What a microbatch in a variant holds when; nothing of amount 0."""
    v = variant
    found = [
        Holding("F", 0, "B", v.backward, v.rest),
        Holding("F", 0, "O", v.out, v.copied),
        Holding("L", 0, "B", v.backward, v.copied),
        Holding("B", 0, "B", v.backward, v.most - v.held),
        Holding("B", v.backward, "W", v.weight, v.after),
    ]
    return [holding for holding in found if holding.amount]


@dataclass(eq=False)
class Passage:
    """Variants and tasks of a (stage, microbatch): O, L and W are there if some variant has them.

    The alternatives of a copy are the ops that it belongs to.
    """

    choice: Choice
    tasks: dict[Part, Running] = field(default_factory=dict)

    @property
    def chosen(self) -> Mapping[Variant, Literal]:
        """Whether it runs in each variant."""
        return self.choice.chosen

    def runs_in(self, mode: int) -> cp_model.LinearExprT:
        """Whether it runs in a mode, as a sum."""
        return sum(chosen for variant, chosen in self.chosen.items() if variant.mode == mode)


def schedule_from(
    problem: Problem,
    starts: Mapping[Key, Mapping[Part, int]],
    variants: Mapping[Key, Variant],
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
        variant, device = variants[stage, m], problem.stages[stage].device
        for part, length in lengths(variant).items():
            start = found[part]
            if part in {"O", "L"}:
                copy = Copy(stage, part, m)
                copies[device].append((copy, start, start + length))
            else:
                kind = "BW" if part == "B" and not variant.split else cast(Kind, part)
                op = Op(stage, kind, m, variant.mode)
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
