"""Times of ops and pairs that follow from parts, as a problem file has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from pipesat.core.attached import attached
from pipesat.core.claims import Bound, Standing
from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS, Kind, parse_kind
from pipesat.core.problem import Problem
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.files.folder import changed_problem
from pipesat.files.strict_json import MOST, MOST_FACTOR
from pipesat.parts.parts import Parts, Plan, Shop

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ChunkOp(NamedTuple):
    """An op of every stage that is such a chunk."""

    chunk: int
    kind: Kind


PairsBy: TypeAlias = Literal["time", "factor"]
Ops: TypeAlias = tuple[ChunkOp, ...]
"""One op, or two in the order of their kinds, then of their chunks."""


@dataclass(frozen=True)
class LeastTime:
    """The shortest plan found of a shop, checked, and what none is shorter than."""

    shop: Shop
    plan: Plan
    bound: Bound

    @property
    def standing(self) -> Standing:
        """What is proven of the plan's length."""
        return Standing(self.plan.length, self.bound.value, of="the time of parts")


@dataclass(frozen=True, repr=False, slots=True)
class PairTimes(Displayed):
    """How long the ops of all chunks take alone, and together where stages share a device.

    ``problem`` is the one that these times were asked for, with them in it. ``by`` says how pairs
    are written: by time, or by a factor of what the two take alone.
    """

    parts: Parts
    alone: Mapping[ChunkOp, LeastTime]
    together: Mapping[Ops, LeastTime]
    problem: Problem | None = None
    by: PairsBy = "time"

    @property
    def times(self) -> dict[Ops, LeastTime]:
        """All of them, each under its op or two ops."""
        return {**{(op,): least for op, least in self.alone.items()}, **self.together}

    def name(self, ops: Sequence[ChunkOp]) -> str:
        """Return ops as text: ``moe F + moe BW``."""
        return " + ".join(f"{self.parts.chunks[op.chunk].name} {op.kind}" for op in ops)

    def in_turn(self, two: Sequence[ChunkOp]) -> int:
        """Time of two ops, one after the other."""
        return sum(self.alone[op].plan.length for op in two)

    def saves(self, two: Ops) -> bool:
        """Whether two ops take less time together than in turn."""
        return self.together[two].plan.length < self.in_turn(two)

    @property
    def unproven(self) -> list[str]:
        """Names of ops and pairs whose times are not proven to be the least."""
        return [self.name(ops) for ops, found in self.times.items() if not found.standing.proven]

    def facts(self) -> Facts:
        """Return how many there are, how many save time, and what is not proven."""
        saving, count = sum(map(self.saves, self.together)), len(self.together)
        unproven = f"{len(self.unproven)} times are not proven to be the least. A longer "
        unproven += "--time-limit may shorten them"
        return [
            ("Times", f"{len(self.alone)} ops alone, {count} combinations"),
            ("Shorter", f"{saving} of {count} combinations take less together than in turn"),
            ("Proof", unproven if self.unproven else "all proven to be the least"),
            ("Doubt", "a model's times, without launches and shared bandwidth: measure them"),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield all times, alone and together, with what is proven of each."""
        unit, keys = self.parts.time_unit, ("ops", "time", "in_turn", "lower_bound", "status")
        rows = [{key: row[key] for key in keys} for row in self.records()]
        yield table_of(rows, notes=[f"times in {unit}" if unit else ""])

    def records(self) -> list[dict[str, Any]]:
        """Return a row per op and combination: its time, that in turn, and what is proven."""
        return [
            claim | {"ops": self.name(ops), "in_turn": self.in_turn(ops) if len(ops) > 1 else None}
            for claim, ops in zip(self.claims(), self.times, strict=True)
        ]

    def plot(self, *drawn: str) -> Figure:
        """Draw plans on streams; return a matplotlib figure.

        Parameters
        ----------
        drawn
            Which: ``"0F+0BW"``, or ``"0BW"`` alone; every combination that saves time if not given.

        Raises
        ------
        BadInput
            If there is no such op, or two are not of one device.
        """
        return cast("Figure", attached("figure_of_parts")(self, self.to_draw(drawn)))

    def to_draw(self, texts: Sequence[str] = ()) -> list[Ops]:
        """Return what a picture shows: what is asked for, or else what saves time, or else all.

        Raises
        ------
        BadInput
            If there is no such op, or two are not of one device.
        """
        asked: list[Ops] = [ops_of_text(text, self.parts) for text in texts]
        return asked or [*filter(self.saves, self.together)] or [*self.together]

    def document(self) -> dict[str, Any]:
        """Return ``stages`` and ``overlap`` of a problem file.

        Raises
        ------
        BadInput
            If a time is more than a problem file may have.
        """
        stages = [
            {"device": device} | {kind: self._time(ChunkOp(chunk, kind)) for kind in KINDS}
            for chunk, device in zip(self.parts.stages, self.parts.devices, strict=True)
        ]
        return {"stages": stages, "overlap": {"pairs": list(self._pairs())}}

    def claims(self) -> list[dict[str, Any]]:
        """Return what is proven of each time, alone and together."""
        return [
            {
                "ops": [{"chunk": self.parts.chunks[op.chunk].name, "kind": op.kind} for op in ops],
                "time": found.plan.length,
                "lower_bound": found.bound.value,
                "lower_bound_source": found.bound.source,
                "status": found.standing.status,
            }
            for ops, found in self.times.items()
        ]

    def _time(self, *ops: ChunkOp) -> int:
        time = self.times[ops].plan.length
        if time > MOST:
            raise BadInput(
                f"{self.name(ops)} takes {time}, expected at most 10^12: use a larger time unit",
                source=self.parts.source,
                where=f"chunks[{ops[0].chunk}]",
            )
        return time

    def _pairs(self) -> Iterator[dict[str, Any]]:
        for stages in stages_by_device(self.parts):
            ops = [(kind, stage) for kind in KINDS for stage in stages]
            for both in combinations_with_replacement(ops, 2):
                one, other = (ChunkOp(self.parts.stages[stage], kind) for kind, stage in both)
                two = in_order(one, other)
                if self.saves(two):
                    time = self._time(*two)
                    said = factor_of(time, self.in_turn(two)) if self.by == "factor" else time
                    yield {"ops": [f"{stage}{kind}" for kind, stage in both], self.by: said}


def factor_of(time: int, in_turn: int) -> list[int]:
    """Return ``time / in_turn``, at most 1, as [num, den]; rounded up where den would be > 10^6."""
    exact = Fraction(time, in_turn)
    if exact.denominator > MOST_FACTOR:
        exact = Fraction(-(-time * MOST_FACTOR // in_turn), MOST_FACTOR)
    return [exact.numerator, exact.denominator]


def ops_of_text(text: str, parts: Parts) -> Ops:
    """Read ``0F+0BW`` or ``0BW``: ops of stages on one device."""
    found = []
    for word in text.split("+"):
        with contextlib.suppress(ValueError, IndexError):
            stage, kind = parse_kind(word)
            found.append((ChunkOp(parts.stages[stage], kind), parts.devices[stage]))
    ops = [op for op, _ in found]
    if len(ops) != text.count("+") + 1 or len(ops) > 2 or len({home for _, home in found}) > 1:
        raise BadInput(
            "expected an op kind as 0BW, or two of one device as 0F+0BW", where="draw", value=text
        )
    return in_order(*ops) if len(ops) == 2 else (ops[0],)


def in_order(one: ChunkOp, other: ChunkOp) -> Ops:
    """Return two ops in the order of their kinds, then of their chunks."""
    if (KINDS.index(one.kind), one.chunk) <= (KINDS.index(other.kind), other.chunk):
        return one, other
    return other, one


def stages_by_device(parts: Parts) -> list[list[int]]:
    """Return the stages of every device that has any."""
    return [
        [stage for stage, home in enumerate(parts.devices) if home == device]
        for device in sorted({*parts.devices})
    ]


def twos_to_time(parts: Parts) -> list[Ops]:
    """Return the combinations of two kinds of chunks that some device has, each once."""
    found: dict[Ops, None] = {}
    for stages in stages_by_device(parts):
        chunks = sorted({parts.stages[stage] for stage in stages})
        ops = [ChunkOp(chunk, kind) for kind in KINDS for chunk in chunks]
        found |= dict.fromkeys(combinations_with_replacement(ops, 2))
    return list(found)


def require_same_stages(parts: Parts, problem: Problem) -> None:
    """Pass if a problem has the stages of the parts, on the same devices."""
    wanted = f"as {parts.source} has"
    homes = [stage.device for stage in problem.stages]
    if len(homes) != len(parts.stages):
        text = f"{len(homes)} stages, expected {len(parts.stages)}, {wanted}"
        raise BadInput(text, where="stages")
    for number, (home, device) in enumerate(zip(homes, parts.devices, strict=True)):
        if home != device:
            where = f"stages[{number}].device"
            raise BadInput(f"expected {device}, {wanted}", where=where, value=home)
    unit = problem.time_unit
    if unit and parts.time_unit and unit != parts.time_unit:
        text = f'expected "{parts.time_unit}", {wanted}'
        raise BadInput(text, where="time_unit", value=unit)


def into_problem(found: PairTimes, problem: Problem) -> Problem:
    """Return a problem with F, B, W, BW and ``overlap`` as the parts have them.

    All else stays: memory, links, microbatches, names. A factor ``FB`` that the problem had goes:
    it would let ops pair that the parts do not show to save anything. The stages are the parts'
    (:func:`require_same_stages`).
    """
    times = found.document()
    return changed_problem(
        problem,
        f"problem with the times of {found.parts.source}",
        stages=times["stages"],
        time_unit=found.parts.time_unit or problem.document.get("time_unit"),
        overlap=times["overlap"] if times["overlap"]["pairs"] else None,
    )
