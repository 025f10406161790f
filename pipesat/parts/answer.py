"""Times of ops and pairs that follow from parts, as a problem file has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from pipesat.core.attached import attached
from pipesat.core.claims import Bound, Standing, change
from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS, Kind, parse_kind
from pipesat.core.problem import Problem
from pipesat.core.showing import Column, Displayed, Facts, Table
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
Two: TypeAlias = tuple[ChunkOp, ChunkOp]
"""Ops in the order of their kinds, then of their chunks."""


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
    together: Mapping[Two, LeastTime]
    problem: Problem | None = None
    by: PairsBy = "time"

    def name(self, ops: Sequence[ChunkOp]) -> str:
        """Return ops as text: ``moe F + moe BW``."""
        return " + ".join(f"{self.parts.chunks[op.chunk].name} {op.kind}" for op in ops)

    def in_turn(self, two: Two) -> int:
        """Time of two ops, one after the other."""
        return sum(self.alone[op].plan.length for op in two)

    def saves(self, two: Two) -> bool:
        """Whether two ops take less time together than in turn."""
        return self.together[two].plan.length < self.in_turn(two)

    @property
    def unproven(self) -> list[str]:
        """Names of ops and pairs whose times are not proven to be the least."""
        every = [((op,), found) for op, found in self.alone.items()]
        pairs = [(two, found) for two, found in self.together.items()]
        return [self.name(ops) for ops, found in [*every, *pairs] if not found.standing.proven]

    def facts(self) -> Facts:
        """Return how many there are, how many save time, and what is not proven."""
        saving = sum(self.saves(two) for two in self.together)
        unproven = f"{len(self.unproven)} times are not proven to be the least. A longer "
        unproven += "--time-limit may shorten them"
        return [
            ("Times", f"{len(self.alone)} ops alone, {len(self.together)} combinations"),
            (
                "Shorter",
                f"{saving} of {len(self.together)} combinations take less together than in turn",
            ),
            ("Proof", unproven if self.unproven else "all proven to be the least"),
            ("Doubt", "a model's times, without launches and shared bandwidth: measure them"),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield all times, alone and together, with what is proven of each."""
        heads = {"": False, "time": True, "in turn": True}
        columns = [Column(head, number=number) for head, number in heads.items()]
        columns += [Column("together", number=False, spare=2), Column("", number=False, spare=1)]
        lines = [
            [self.name([op]), f"{least.plan.length}", "", "", _verdict(least.standing)]
            for op, least in self.alone.items()
        ]
        for two, least in self.together.items():
            length, in_turn = least.plan.length, self.in_turn(two)
            cells = (f"{length}", f"{in_turn}", change(length, in_turn), _verdict(least.standing))
            lines.append([self.name(two), *cells])
        note = f"times in {self.parts.time_unit}"
        yield Table(columns, lines, notes=[note] if self.parts.time_unit else [])

    def records(self) -> list[dict[str, Any]]:
        """Return a row per op and combination: its time, that in turn, and what is proven."""
        in_turn = [None] * len(self.alone) + [self.in_turn(two) for two in self.together]
        return [
            claim
            | {
                "ops": " + ".join(f"{op['chunk']} {op['kind']}" for op in claim["ops"]),
                "in_turn": together,
            }
            for claim, together in zip(self.claims(), in_turn, strict=True)
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

    def to_draw(self, texts: Sequence[str] = ()) -> list[tuple[ChunkOp, ...]]:
        """Return what a picture shows: what is asked for, or else what saves time, or else all.

        Raises
        ------
        BadInput
            If there is no such op, or two are not of one device.
        """
        asked: list[tuple[ChunkOp, ...]] = [ops_of_text(text, self.parts) for text in texts]
        return asked or [two for two in self.together if self.saves(two)] or [*self.together]

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
        every: list[tuple[Sequence[ChunkOp], LeastTime]] = [
            *(((op,), found) for op, found in self.alone.items()),
            *self.together.items(),
        ]
        return [
            {
                "ops": [{"chunk": self.parts.chunks[op.chunk].name, "kind": op.kind} for op in ops],
                "time": found.plan.length,
                "lower_bound": found.bound.value,
                "lower_bound_source": found.bound.source,
                "status": found.standing.status,
            }
            for ops, found in every
        ]

    def _time(self, op: ChunkOp) -> int:
        return self._within_range(self.alone[op].plan.length, op)

    def _within_range(self, time: int, *ops: ChunkOp) -> int:
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
            for place, (kind, stage) in enumerate(ops):
                for other, partner in ops[place:]:
                    chunks = self.parts.stages[stage], self.parts.stages[partner]
                    two = in_order(ChunkOp(chunks[0], kind), ChunkOp(chunks[1], other))
                    if self.saves(two):
                        time = self._within_range(self.together[two].plan.length, *two)
                        said: int | list[int] = time
                        if self.by == "factor":
                            said = factor_of(time, self.in_turn(two))
                        yield {"ops": [f"{stage}{kind}", f"{partner}{other}"], self.by: said}


def factor_of(time: int, in_turn: int) -> list[int]:
    """Return ``time / in_turn``, at most 1, as [num, den]; rounded up where den would be > 10^6."""
    exact = Fraction(time, in_turn)
    if exact.denominator > MOST_FACTOR:
        exact = Fraction(-(-time * MOST_FACTOR // in_turn), MOST_FACTOR)
    return [exact.numerator, exact.denominator]


def ops_of_text(text: str, parts: Parts) -> tuple[ChunkOp, ...]:
    """Read ``0F+0BW`` or ``0BW``: ops of stages on one device.

    Raises
    ------
    BadInput
        If it is anything else.
    """
    wrong = BadInput(
        "expected an op kind as 0BW, or two of one device as 0F+0BW", where="draw", value=text
    )
    found = []
    for word in text.split("+"):
        try:
            stage, kind = parse_kind(word)
        except ValueError:
            raise wrong from None
        if stage >= len(parts.stages):
            raise wrong
        found.append((stage, ChunkOp(parts.stages[stage], kind)))
    if len(found) > 2 or len({parts.devices[stage] for stage, _ in found}) > 1:
        raise wrong
    ops = [op for _, op in found]
    return in_order(*ops) if len(ops) == 2 else (ops[0],)


def in_order(one: ChunkOp, other: ChunkOp) -> Two:
    """Return two ops in the order of their kinds, then of their chunks."""
    if (KINDS.index(one.kind), one.chunk) <= (KINDS.index(other.kind), other.chunk):
        return one, other
    return other, one


def stages_by_device(parts: Parts) -> list[list[int]]:
    """Return the stages of every device that has any."""
    found: dict[int, list[int]] = {}
    for stage, device in enumerate(parts.devices):
        found.setdefault(device, []).append(stage)
    return [found[device] for device in sorted(found)]


def twos_to_time(parts: Parts) -> list[Two]:
    """Return the combinations of two kinds of chunks that some device has, each once."""
    found: dict[Two, None] = {}
    for stages in stages_by_device(parts):
        chunks = sorted({parts.stages[stage] for stage in stages})
        ops = [ChunkOp(chunk, kind) for kind in KINDS for chunk in chunks]
        found |= {(a, b): None for place, a in enumerate(ops) for b in ops[place:]}
    return list(found)


def require_same_stages(parts: Parts, problem: Problem) -> None:
    """Pass if a problem has the stages of the parts, on the same devices.

    Raises
    ------
    BadInput
        If the problem has other stages, or another time unit.
    """
    if len(problem.stages) != len(parts.stages):
        raise BadInput(
            f"{len(problem.stages)} stages, expected {len(parts.stages)}, as {parts.source} has",
            where="stages",
        )
    for number, (stage, device) in enumerate(zip(problem.stages, parts.devices, strict=True)):
        if stage.device != device:
            raise BadInput(
                f"expected {device}, as {parts.source} has",
                where=f"stages[{number}].device",
                value=stage.device,
            )
    if problem.time_unit and parts.time_unit and problem.time_unit != parts.time_unit:
        raise BadInput(
            f'expected "{parts.time_unit}", as {parts.source} has',
            where="time_unit",
            value=problem.time_unit,
        )


def into_problem(found: PairTimes, problem: Problem) -> Problem:
    """Return a problem with F, B, W, BW and ``overlap`` as the parts have them.

    All else stays: memory, links, microbatches, names. A factor ``FB`` that the problem had goes:
    it would let ops pair that the parts do not show to save anything. The stages are the parts'
    (:func:`require_same_stages`).

    Raises
    ------
    BadInput
        If a time is more than a problem file may have, or the problem has what does not go with
        listed pairs.
    """
    times = found.document()
    return changed_problem(
        problem,
        f"problem with the times of {found.parts.source}",
        stages=times["stages"],
        time_unit=found.parts.time_unit or problem.document.get("time_unit"),
        overlap=times["overlap"] if times["overlap"]["pairs"] else None,
    )


def _verdict(standing: Standing) -> str:
    """Say what is proven: the order of the parts, not the time that a machine takes."""
    return "optimal order of these parts" if standing.proven else standing.verdict
