"""Reading assignment files, ``pipesat.assignment/1``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipesat.core.errors import BadInput
from pipesat.files.complaint import validated
from pipesat.files.strict_model import StrictModel
from pipesat.files.values import Count
from pipesat.replicas.answer import Assignment

_Number = Annotated[int, Field(ge=0)]
_Microbatch = Annotated[list[_Number], Field(min_length=1)]
_Replica = Annotated[list[_Microbatch], Field(min_length=1)]


class LengthsRead(StrictModel):
    """What lengths were dealt."""

    sha256: str
    reference: Count
    quadratic: Annotated[float, Field(ge=0, le=1)]
    tokens: Count | None


class AssignmentModel(StrictModel):
    """An assignment file."""

    format: Literal["pipesat.assignment/1"]
    problem_sha256: str
    schedule: str
    lengths: LengthsRead | None
    replicas: Annotated[list[_Replica], Field(min_length=1)]
    objective: Literal["makespan", "span"] = "makespan"
    value: _Number
    lower_bound: _Number | None
    lower_bound_source: str
    gap: float | None
    makespans: list[_Number] | None
    seed: int | None


def parse_assignment(document: object, source: str) -> Assignment:
    """Validate an assignment document.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    model = validated(document, AssignmentModel, source)
    numbers = sorted(n for row in model.replicas for part in row for n in part)
    if numbers != [*range(len(numbers))]:
        text = f"expected every sequence from 0 to {len(numbers) - 1} exactly once"
        raise BadInput(text, source=source, where="replicas")
    if len({*map(len, model.replicas)}) > 1:
        text = "expected the same number of microbatches in every replica"
        raise BadInput(text, source=source, where="replicas")
    makespans = [model.value] if model.makespans is None else model.makespans
    if max(makespans, default=None) != model.value:
        text = "expected the largest of makespans"
        raise BadInput(text, source=source, where="value", value=model.value)
    return Assignment(
        problem_sha256=model.problem_sha256,
        schedule=model.schedule,
        lengths=None if model.lengths is None else model.lengths.model_dump(),
        replicas=model.replicas,
        makespans=makespans,
        lower_bound=model.lower_bound,
        lower_bound_source=model.lower_bound_source,
        seed=model.seed,
    )
