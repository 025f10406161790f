"""``overlap`` of a problem file: which two ops may run as one (contract, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from pipesat.core.errors import BadInput
from pipesat.core.ops import OpKind, parse_kind
from pipesat.core.problem import Overlap
from pipesat.files.strict_model import StrictModel
from pipesat.files.values import Count, FactorOf


class PairModel(StrictModel):
    """One entry of ``overlap.pairs``; ``factor`` is of what its members take alone."""

    ops: Annotated[list[str], Field(min_length=2, max_length=2)]
    time: Count | None = None
    factor: FactorOf | None = None


class OverlapModel(StrictModel):
    """``overlap``."""

    FB: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    pairs: list[PairModel] = []


def parse_overlap(
    model: OverlapModel | None, homes: Sequence[int], *, lists: bool
) -> Overlap | None:
    """Validate ``overlap``; ``homes`` has each stage's device.

    ``lists``: whether microbatches are a list, so that there is no one time of two ops.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    if model is None:
        return None
    if not model.model_fields_set:
        raise BadInput("expected FB, pairs or both", where="overlap")
    if model.FB is None and "FB" in model.model_fields_set:
        raise BadInput("expected [num, den]", where="overlap.FB", value=None)
    listed_at: dict[frozenset[OpKind], int] = {}
    times: dict[tuple[OpKind, OpKind], int] = {}
    factors: dict[tuple[OpKind, OpKind], tuple[int, int]] = {}
    for number, entry in enumerate(model.pairs):
        where = f"overlap.pairs[{number}].ops"
        a, b = (_kind(text, homes, f"{where}[{i}]") for i, text in enumerate(entry.ops))
        if homes[a[0]] != homes[b[0]]:
            raise BadInput(
                f"expected two stages of one device, but stage {a[0]} lies on device {homes[a[0]]}"
                f", stage {b[0]} on device {homes[b[0]]}",
                where=where,
                value=entry.ops,
            )
        if (before := listed_at.setdefault(frozenset((a, b)), number)) != number:
            raise BadInput(
                f"expected each combination at most once, but overlap.pairs[{before}] "
                "has it already",
                where=where,
                value=entry.ops,
            )
        found = _time_or_factor(entry, f"overlap.pairs[{number}]", lists=lists)
        if isinstance(found, int):
            times[a, b] = found
        else:
            factors[a, b] = found
    if model.FB is None:  # an empty list lets nothing pair, as no key does
        return Overlap(None, times, factors) if times or factors else None
    return Overlap((model.FB[0], model.FB[1]), times, factors)


def _time_or_factor(entry: PairModel, where: str, *, lists: bool) -> int | tuple[int, int]:
    given = entry.model_fields_set & {"time", "factor"}
    if len(given) != 1:
        wrong = "not both" if given else "both are missing"
        raise BadInput(f"expected either time or factor, {wrong}", where=where)
    if "time" in given:
        if entry.time is None:
            raise BadInput("expected an integer from 1 to 10^12", where=f"{where}.time", value=None)
        if lists:
            raise BadInput(
                "microbatches that are a list take no pairs by time: give `factor`, [num, den] of "
                "what the two take alone",
                where=f"{where}.time",
                value=entry.time,
            )
        return entry.time
    if entry.factor is None or entry.factor[0] > entry.factor[1]:
        wanted = "expected [num, den], 1 <= num <= den <= 10^6"
        raise BadInput(wanted, where=f"{where}.factor", value=entry.factor)
    return entry.factor[0], entry.factor[1]


def _kind(text: str, homes: Sequence[int], where: str) -> OpKind:
    try:
        stage, kind = parse_kind(text)
    except ValueError:
        wanted = "expected <stage><F|B|W|BW>, as in 0F"
        raise BadInput(wanted, where=where, value=text) from None
    if stage >= len(homes):
        wanted = f"expected a stage from 0 to {len(homes) - 1}"
        raise BadInput(wanted, where=where, value=text)
    return stage, kind
