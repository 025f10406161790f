"""A schedule by (stage, microbatch): when its parts start, and in which way it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pipesat.core.ops import PHASE_OF, Copy, CopyKind, Kind, Op, Pair
from pipesat.core.problem import Problem
from pipesat.core.rules import in_order
from pipesat.core.schedule import Objective, Schedule, Timed, TimedCopy
from pipesat.solver.modes.assign import Cell as Key
from pipesat.solver.modes.ways import Part, Way

_COPIES: Final[dict[Part, CopyKind]] = {"O": "O", "L": "L"}
_OPS: Final[dict[Part, Kind]] = {"F": "F", "B": "B", "W": "W"}


@dataclass(frozen=True)
class State:
    """A checked schedule without pairs."""

    problem: Problem
    schedule: Schedule
    objective: Objective = "makespan"

    @property
    def _ops(self) -> Iterator[tuple[Op, int]]:
        for _, (op, start, _) in self.schedule:
            if isinstance(op, Op):
                yield op, start

    @cached_property
    def starts(self) -> dict[Key, dict[Part, int]]:
        """Start of every part of each (stage, microbatch)."""
        found: dict[Key, dict[Part, int]] = {}
        for op, start in self._ops:
            found.setdefault((op.stage, op.microbatch), {})[PHASE_OF[op.kind]] = start
        for row in self.schedule.copies:
            for copy, start, _ in row:
                if isinstance(copy, Copy):
                    found[copy.stage, copy.microbatch][copy.kind] = start
        return found

    @cached_property
    def way(self) -> dict[Key, Way]:
        """The way in which each (stage, microbatch) runs."""
        found = {}
        for op, _ in self._ops:
            if op.kind in ("B", "BW"):
                amounts = self.problem.amounts(op.stage, op.microbatch, op.mode)
                found[op.stage, op.microbatch] = Way(op.mode, op.kind == "BW", amounts)
        return found

    @cached_property
    def value(self) -> int:
        """The objective."""
        return self.schedule.value(self.objective)


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
        for part, start in found.items():
            length = way.lengths.get(part)
            if length is None:
                continue
            if part in _COPIES:
                copies[device].append((Copy(stage, _COPIES[part], m), start, start + length))
            else:
                kind = "BW" if part == "B" and way.fused else _OPS[part]
                op = Op(stage, kind, m, way.mode)
                length = paired[op][1] if op in paired else length
                rows[device].append((op, start, start + length))

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

    return Schedule(
        tuple(tuple(items(row)) for row in rows),
        source,
        tuple(
            tuple(
                TimedCopy(*timed)
                for timed in sorted(row, key=lambda x: (x[1], x[2], x[0].kind == "L"))
            )
            for row in copies
        )
        if any(copies)
        else (),
    )
