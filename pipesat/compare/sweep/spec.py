"""Sweep files, ``pipesat.sweep/1`` (TOML), and their cases: one solve each.

Every value is checked, every complaint has its path. A case is known by the digest of what is
solved and how.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os.path
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import iglob
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from pipesat.compare.sweep.sources import (
    Capacity,
    NumbersModel,
    OneOrMore,
    ProfileModel,
    Source,
    from_numbers,
    from_problem,
    from_profile,
)
from pipesat.core.complaint import validated
from pipesat.core.errors import BadInput, NotApplicable, require
from pipesat.core.settings import MOST_SECONDS, Placement, Target
from pipesat.core.strict_json import MOST_DEVICES, Amount, Count, StrictModel, read_text
from pipesat.problem.problem import Problem

LARGEST_FILE: Final = 16 << 20
_MOST_SEED: Final = 2**31 - 1


_Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False)]


class RunModel(StrictModel):
    """``[run]``: what holds for every case."""

    workers: Annotated[int, Field(ge=1, le=1024)] = 1
    deterministic: bool = False


class GridModel(StrictModel):
    """``[grid]`` or an entry of ``[[grid]]``: axes in the order in which they vary, slowest first.

    The first ten shape the problem, the others say how it is solved.
    """

    problem: OneOrMore[str] | None = None
    costs: OneOrMore[str] | None = None
    devices: OneOrMore[Annotated[int, Field(ge=1, le=MOST_DEVICES)]] | None = None
    microbatches: OneOrMore[Count] | None = None
    placement: OneOrMore[Placement] | None = None
    chunks: OneOrMore[Annotated[int, Field(ge=1)]] | None = None
    split: OneOrMore[Literal["even", "balanced"]] | None = None
    memory: OneOrMore[Capacity] | None = None
    comm: OneOrMore[Amount] | None = None
    backward: OneOrMore[Literal["auto", "split", "fused", "either"]] | None = None
    objective: OneOrMore[Literal["makespan", "span"]] = ["makespan"]
    target: OneOrMore[Literal["any", Target]] = ["any"]
    time_limit: OneOrMore[_Seconds] = [60.0]
    seed: OneOrMore[Annotated[int, Field(ge=0, le=_MOST_SEED)]] = [0]


class SpecModel(StrictModel):
    """The whole document; tables of costs and grids are checked one by one."""

    format: Literal["pipesat.sweep/1"]
    name: str = ""
    run: RunModel = RunModel()
    costs: dict[str, dict[str, Any]] = {}
    grid: OneOrMore[dict[str, Any]]


SHAPING: Final = tuple(GridModel.model_fields)[:10]
SOLVING: Final = tuple(GridModel.model_fields)[10:]
_OF_COSTS: Final = ("devices", "placement", "chunks", "split", "comm", "backward")


Grid: TypeAlias = Mapping[str, list[Any]]
"""Axes by name, each with its values; an axis that is not given has the value ``None``."""


@dataclass(frozen=True)
class Spec:
    """A sweep: its grids, and the costs or problem files that they name.

    ``workers`` are the lanes of one solve.
    """

    name: str
    grids: tuple[Grid, ...]
    sources: Mapping[str, Source]
    workers: int
    deterministic: bool

    @property
    def most_cases(self) -> int:
        """How many cases there are at most, by the axes' lengths."""
        return sum(prod(map(len, grid.values())) for grid in self.grids)


def read_spec(path: Path) -> Spec:
    """Read a sweep file and every file that it names."""
    source = str(path)
    model = validated(_read_toml(path), SpecModel, source)
    sources: dict[str, Source] = {
        name: _costs(name, table, path.parent, f"{source}: costs.{name}")
        for name, table in model.costs.items()
    }
    grids = []
    for number, table in enumerate(model.grid):
        where = f"{source}: grid" if len(model.grid) == 1 else f"{source}: grid[{number}]"
        grid = validated(table, GridModel, where)
        grids.append(_grid(grid, [*model.costs], path.parent, where, sources))
    run = model.run
    return Spec(
        name=model.name,
        grids=tuple(grids),
        sources=sources,
        workers=1 if run.deterministic else run.workers,
        deterministic=run.deterministic,
    )


def _read_toml(path: Path) -> dict[str, Any]:
    source = str(path)
    text = read_text(path, LARGEST_FILE)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not TOML: {error}", source=source) from None
    require(
        document.get("grid"), "an empty sweep, expected a table [grid] with axes", source=source
    )
    return document


def _costs(name: str, table: Mapping[str, Any], folder: Path, source: str) -> Source:
    if "profile" in table:
        model = validated(table, ProfileModel, source)
        return from_profile(model, folder, source)
    return from_numbers(name, validated(table, NumbersModel, source))


def _grid(
    model: GridModel, costs: list[str], folder: Path, where: str, sources: dict[str, Source]
) -> Grid:
    """Check what axes have to do with each other; read the problem files into ``sources``."""
    axes = {name: getattr(model, name) for name in GridModel.model_fields}
    if model.problem is None:
        _check_grid_of_costs(model, costs, where)
        axes["costs"] = model.costs or costs
    else:
        alien = next((name for name in ("costs", *_OF_COSTS) if axes[name] is not None), None)
        if alien is not None:
            raise BadInput("a problem file has its own", source=where, where=alien)
        axes["problem"] = _problem_files(model.problem, folder, where, sources)
    return {name: [None] if values is None else values for name, values in axes.items()}


def _check_grid_of_costs(model: GridModel, costs: list[str], where: str) -> None:
    require(costs, "expected a table [costs.NAME], or an axis problem", source=where)
    for number, name in enumerate(model.costs or []):
        require(
            name in costs,
            f"expected one of {', '.join(costs)}",
            source=where,
            where=f"costs[{number}]",
            value=name,
        )
    for name in ("devices", "microbatches"):
        require(
            getattr(model, name) is not None,
            "this axis is required and missing",
            source=where,
            where=name,
        )
    require(
        model.chunks is None or "loop" in (model.placement or []),
        'only a loop has a choice: placement = "loop"',
        source=where,
        where="chunks",
    )


def _problem_files(
    patterns: list[str], folder: Path, where: str, sources: dict[str, Source]
) -> list[str]:
    """Names of the problem files, relative to the sweep file's folder as the patterns are."""
    names: dict[str, None] = {}
    for number, pattern in enumerate(patterns):
        found = [pattern]
        if not os.path.isfile(folder / pattern):  # nor is a name that no file can have
            found = (
                [] if "\0" in pattern else sorted(iglob(pattern, root_dir=folder, recursive=True))
            )
        require(
            found, "no such problem file", source=where, where=f"problem[{number}]", value=pattern
        )
        names |= dict.fromkeys(found)
    sources.update({name: from_problem(folder / name) for name in names})
    return list(names)


@dataclass(frozen=True)
class Case:
    """One solve.

    Attributes
    ----------
    key
        SHA-256 of the problem's digest and of everything that the solve depends on; of the axes'
        values where there is no problem.
    axes
        What the grid says, by axis; ``None`` where it says nothing.
    solve
        Keyword arguments of :func:`pipesat.compare.solve.solve`.
    problem_sha256, ops, time_unit
        Of the problem; ``None``, 0 and empty where there is none.
    refused
        Why there is no such problem; empty if there is one.
    """

    key: str
    axes: Mapping[str, Any]
    solve: Mapping[str, Any]
    problem_sha256: str | None
    ops: int
    time_unit: str = ""
    refused: str = ""


def cases_of(spec: Spec) -> Iterator[Case]:
    """Yield every case once, in the order of the file; equal ones of several grids once."""
    found: dict[str, Case] = {}
    for grid in spec.grids:
        for values in itertools.product(*grid.values()):  # the last axis varies fastest
            axes = dict(zip(grid, values, strict=True))
            if axes["placement"] != "loop":
                axes["chunks"] = None
            case = _case(spec, axes)
            found.setdefault(case.key, case)
    yield from found.values()


def problem_of(spec: Spec, case: Case) -> Problem:
    """Make a case's problem again: a thousand of them at a time would be too much."""
    return spec.sources[_source(case.axes)](case.axes)


def _case(spec: Spec, axes: dict[str, Any]) -> Case:
    solve = {name: axes[name] for name in SOLVING} | {
        "target": None if axes["target"] == "any" else axes["target"],
        "time_limit": float(axes["time_limit"]),
        "workers": spec.workers,
        "deterministic": spec.deterministic,
    }
    shape = {name: axes[name] for name in SHAPING}
    try:
        problem = spec.sources[_source(axes)](shape)
    except (BadInput, NotApplicable) as error:
        key = _digest({"refused": str(error), "axes": shape, "solve": solve})
        return Case(key, axes, solve, None, 0, refused=str(error))
    key = _digest({"problem": problem.sha256, "solve": solve})
    return Case(key, axes, solve, problem.sha256, problem.op_count, problem.time_unit)


def _source(axes: Mapping[str, Any]) -> str:
    return str(axes["costs"] if axes["problem"] is None else axes["problem"])


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
