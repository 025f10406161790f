"""Stages' memory modes and pairs of ops, as problem files have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, PlainValidator, create_model

from pipesat.core.complaint import Says, validated_at
from pipesat.core.errors import BadInput, require
from pipesat.core.strict_json import Amount, Count, FactorOf, StrictModel
from pipesat.problem.building import Backward
from pipesat.problem.ops import OpKind, parse_kind
from pipesat.problem.problem import Mode, Offload, Overlap
from pipesat.problem.stage import AMOUNTS, KEEP

MOST_MODES = 16
ABSENT: Any = None
"""Of a key that may be left out, but not be null."""


AmountsModel: Any = create_model(
    "AmountsModel",
    __base__=StrictModel,
    __doc__="Amounts of a stage, those of :data:`pipesat.problem.stage.AMOUNTS`, or what differs.",
    **cast("dict[str, Any]", dict.fromkeys(AMOUNTS, (Amount, 0))),
)


class OffloadModel(StrictModel):
    """``offload`` of a mode."""

    out: Amount
    in_: Amount = Field(alias="in")
    held: Amount


class ModeModel(AmountsModel):  # type: ignore[misc]
    """One entry of ``modes``."""

    name: str
    backward: Backward = ABSENT
    offload: OffloadModel = ABSENT


def stated_in(model: BaseModel) -> tuple[tuple[str, int], ...]:
    """Return the amounts that an entry states, with their keys."""
    return tuple((key, getattr(model, key)) for key in AMOUNTS if key in model.model_fields_set)


def parse_modes(entries: Sequence[ModeModel], held_after_f: int, stage: int) -> tuple[Mode, ...]:
    """Return the modes of a stage, which holds so much after F."""
    where = f"stages[{stage}].modes"
    seen = {KEEP: "the stage's own amounts"}
    modes = []
    for number, entry in enumerate(entries):
        here = f"{where}[{number}]"
        require(
            entry.name not in seen,
            f"expected another name, this one is that of {seen.get(entry.name)}",
            where=f"{here}.name",
            value=entry.name,
        )
        seen[entry.name] = here
        modes.append(
            Mode(entry.name, stated_in(entry), entry.backward, _offload(held_after_f, entry, here))
        )
    return tuple(modes)


def modes_in(entries: Sequence[Any], held_after_f: int, stage: int) -> tuple[Mode, ...]:
    """Return the modes that entries of a problem file state of a stage, which holds so much."""
    require(
        len(entries) <= MOST_MODES,
        f"{len(entries)} entries, expected at most {MOST_MODES}",
        where=f"stages[{stage}].modes",
    )
    path = ("stages", stage, "modes")
    models = [validated_at(one, ModeModel, (*path, n)) for n, one in enumerate(entries)]
    return parse_modes(models, held_after_f, stage)


def overlap_in(given: Any, homes: Sequence[int]) -> Overlap | None:
    """Return what ``overlap`` of a problem file, or the factor of F and BW alone, states."""
    if given is None:
        return None
    entry = given if isinstance(given, Mapping) else {"FB": given}
    return parse_overlap(validated_at(entry, OverlapModel, ("overlap",)), homes)


def _offload(held_after_f: int, entry: ModeModel, where: str) -> Offload | None:
    if entry.offload is None:
        return None
    if others := sorted(entry.model_fields_set - {"name", "offload"}):
        raise BadInput(f"expected offload alone, without {', '.join(others)}", where=where)
    copies = entry.offload
    require(
        copies.held <= held_after_f,
        f"expected at most held_after_F, {held_after_f}",
        where=f"{where}.offload.held",
        value=copies.held,
    )
    return Offload(copies.out, copies.in_, copies.held)


_KindOfOp = Annotated[
    OpKind,
    PlainValidator(parse_kind, json_schema_input_type=str),
    Says("<stage><F|B|W|BW>, as in 0F"),
]


class PairModel(StrictModel):
    """One entry of ``overlap.pairs``; ``factor`` is of what its members take alone."""

    ops: Annotated[list[_KindOfOp], Field(min_length=2, max_length=2)]
    time: Count = 1
    factor: FactorOf = []  # noqa: RUF012  pydantic copies it


class OverlapModel(StrictModel):
    """``overlap``."""

    FB: Annotated[list[Count], Field(min_length=2, max_length=2)] = []  # noqa: RUF012
    pairs: list[PairModel] = []  # noqa: RUF012  pydantic copies it


def parse_overlap(model: OverlapModel | None, homes: Sequence[int]) -> Overlap | None:
    """Validate ``overlap``; ``homes`` has each stage's device."""
    if model is None:
        return None
    require(model.model_fields_set, "expected FB, pairs or both", where="overlap")
    listed_at: dict[frozenset[OpKind], int] = {}
    times: dict[tuple[OpKind, OpKind], int] = {}
    factors: dict[tuple[OpKind, OpKind], tuple[int, int]] = {}
    for number, entry in enumerate(model.pairs):
        where = f"overlap.pairs[{number}].ops"
        names = [f"{stage}{kind}" for stage, kind in entry.ops]
        for place, (stage, _) in enumerate(entry.ops):
            require(
                stage < len(homes),
                f"expected a stage from 0 to {len(homes) - 1}",
                where=f"{where}[{place}]",
                value=names[place],
            )
        a, b = entry.ops
        require(
            homes[a[0]] == homes[b[0]],
            f"expected two stages of one device, but stage {a[0]} lies on device {homes[a[0]]}"
            f", stage {b[0]} on device {homes[b[0]]}",
            where=where,
            value=names,
        )
        if (before := listed_at.setdefault(frozenset((a, b)), number)) != number:
            raise BadInput(
                f"expected each combination at most once, but overlap.pairs[{before}] "
                "has it already",
                where=where,
                value=names,
            )
        found = _time_or_factor(entry, f"overlap.pairs[{number}]")
        if isinstance(found, int):
            times[a, b] = found
        else:
            factors[a, b] = found
    if not model.FB:  # an empty list lets nothing pair, as no key does
        return Overlap(None, times, factors) if times or factors else None
    return Overlap((model.FB[0], model.FB[1]), times, factors)


def _time_or_factor(entry: PairModel, where: str) -> int | tuple[int, int]:
    given = entry.model_fields_set & {"time", "factor"}
    if len(given) != 1:
        wrong = "not both" if given else "both are missing"
        raise BadInput(f"expected either time or factor, {wrong}", where=where)
    if "time" in given:
        return entry.time
    require(
        entry.factor[0] <= entry.factor[1],
        "expected [num, den], 1 <= num <= den <= 10^6",
        where=f"{where}.factor",
        value=entry.factor,
    )
    return entry.factor[0], entry.factor[1]
