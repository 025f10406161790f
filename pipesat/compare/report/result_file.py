"""Reading what ``solve -o DIR`` wrote: problem, result and schedule, which have to agree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from pipesat.compare.result import Result
from pipesat.core.amounts import exactly
from pipesat.core.claims import Bound, Period, Standing
from pipesat.core.complaint import InFile, validated
from pipesat.core.errors import BadInput, require
from pipesat.core.folder import has_file, listed
from pipesat.core.settings import Target
from pipesat.core.showing import Displayed, Facts, Table
from pipesat.core.strict_json import read_json
from pipesat.problem.problem import Problem
from pipesat.schedule.result import Solution
from pipesat.schedule.schedule import Schedule

LARGEST_FILE = 16 << 20

Value = Annotated[StrictInt, Field(ge=0)]


class PeriodModel(BaseModel):
    """What a result object says of the time per microbatch in the long run."""

    value: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    lower_bound: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    @property
    def made(self) -> Period:
        """The same as a claim."""
        return Period(exactly(self.value), exactly(self.lower_bound))


class ResultModel(BaseModel):
    """The keys of a result object that a report shows; others may stand beside them."""

    model_config = ConfigDict(extra="ignore")

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    objective: Literal["makespan", "span"]
    value: Value | None
    lower_bound: Value | None
    lower_bound_source: StrictStr | None
    period: PeriodModel | None = None
    wall_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    seed: Value
    workers: Value
    lanes: Value = 0
    cpu_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    versions: dict[StrictStr, StrictStr]
    explanation: StrictStr | None = None
    target: Annotated[Target | None, Field(alias="for")] = None
    release: StrictStr | None = None


class AdviceModel(BaseModel):
    """The lines and the table of ``advice.json``."""

    model_config = ConfigDict(extra="ignore")

    advice: dict[StrictStr, StrictStr]
    details: list[tuple[StrictStr, StrictStr]] = []
    table: Table


@dataclass(frozen=True, repr=False)
class SavedAdvice(Displayed):
    """An advice as it was shown."""

    model: AdviceModel

    def facts(self) -> Facts:
        """Return its lines."""
        return [*self.model.advice.items()]

    def details(self) -> Facts:
        """Return what else was known."""
        return self.model.details

    def tables(self) -> Iterator[Table]:
        """Yield its table."""
        yield self.model.table


def read_advice(folder: Path) -> SavedAdvice | None:
    """Return the advice of a folder that ``pipesat advise -o`` wrote, ``None`` of any other."""
    path = folder / "advice.json"
    if not has_file(folder, path.name):
        return None
    return SavedAdvice(validated(read_json(path, LARGEST_FILE), AdviceModel, str(path)))


def result_folders(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the result folders: the folder itself, or its placements' by name."""
    names = listed(folder)
    if names is None:  # copied, say: what is there counts
        try:
            below = os.listdir(folder)
        except OSError as error:
            raise BadInput(f"cannot read: {error.strerror or error}", source=str(folder)) from None
        there = ["problem.json", *(os.path.join(name, "problem.json") for name in below)]
        names = [name for name in there if os.path.isfile(folder / name)]
    paths = [PurePath(name) for name in names]
    inner = {p.parent.name for p in paths if p.name == "problem.json" and len(p.parts) <= 2}
    require(
        inner,
        "no problem.json here: expected a folder that pipesat solve -o or compare -o wrote",
        source=str(folder),
    )
    if "" in inner:
        yield "", folder
        return
    for name in sorted(inner, key=lambda name: (name != "chain", name)):
        yield name, folder / name


def read_result(path: Path, problem: Problem, schedule: Schedule | None) -> Result:
    """Read a result object and join it with the problem and the schedule it speaks of."""
    source = str(path)
    model = validated(read_json(path, LARGEST_FILE), ResultModel, source)
    value = None if schedule is None else schedule.value(model.objective)
    if model.value != value:
        theirs = "there is no schedule.json" if value is None else f"schedule.json has {value}"
        raise BadInput(
            f"expected the schedule's {model.objective}: {theirs}",
            source=source,
            where="value",
            value=InFile(model.value),
        )
    bound = model.lower_bound
    require(
        value is None or bound is None or bound <= value,
        f"expected at most the value {value}",
        source=source,
        where="lower_bound",
        value=bound,
    )
    status = Standing(value, bound, value is None and model.status == "infeasible").status
    require(
        model.status == status,
        f"expected {status}, as value and lower_bound say",
        source=source,
        where="status",
        value=model.status,
    )
    found = Solution(
        problem=problem,
        status=model.status,
        objective=model.objective,
        schedule=schedule,
        bound=None if bound is None else Bound(bound, model.lower_bound_source or "unknown"),
        baseline=None,
        period=None if model.period is None else model.period.made,
        wall_s=model.wall_s,
        seed=model.seed,
        workers=model.workers,
        lanes=model.lanes,
        cpu_s=model.cpu_s,
        versions=model.versions,
        explanation=model.explanation or "",
        target=model.target,
        release=model.release,
    )
    return Result.of(found)
