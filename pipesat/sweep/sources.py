"""Where the problems of a sweep come from: numbers, a measured profile, or problem files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field

from pipesat.core.amounts import amount
from pipesat.core.errors import BadInput, said_of
from pipesat.core.least import require_plain
from pipesat.core.stage import COSTS
from pipesat.files.folder import changed_document
from pipesat.files.problem_file import parse_problem, read_problem
from pipesat.files.strict_json import MOST, Amount, Count, StrictModel
from pipesat.placement.building import document_of, require_few, share_of_1f1b
from pipesat.placement.documents import capacities_of
from pipesat.placement.geometry import CHUNKS, ONE_ROUTE, Geometry
from pipesat.profile.cut import Statistic
from pipesat.profile.file import read_links, read_profile
from pipesat.profile.problem import SPLIT_LIMIT, problem_of_profile
from pipesat.profile.static import Number, Optimizer, Receive, Training

UNLIMITED: Final = "unlimited"
_EXPECTED: Final = (
    'expected an integer, a list with one per device, "unlimited", a share as "1f1b*0.75", '
    'or for profiles an amount as "40GiB"'
)


@dataclass(frozen=True)
class CapacityInBytes:
    """An amount that was given with its unit."""

    count: int


Capacity: TypeAlias = int | list[int] | Fraction | CapacityInBytes | None
"""In the problem's unit, one or one per device; a share of 1F1B's peak; bytes; unlimited."""


def read_capacity(value: object, where: str = "memory", source: str = "") -> Capacity:
    """Read one value of the ``memory`` axis."""
    if _is_amount(value):
        return value  # type: ignore[return-value]
    if isinstance(value, list) and value and all(map(_is_amount, value)):
        return value
    if isinstance(value, str):
        if value == UNLIMITED:
            return None
        if (share := share_of_1f1b(value)) is not None:
            return share
        try:
            return CapacityInBytes(amount(where, value))
        except BadInput:
            pass
    raise BadInput(_EXPECTED, source=source, where=where, value=value)


def with_capacity(document: dict[str, Any], capacity: Capacity) -> dict[str, Any]:
    """Return a problem document with other capacities; a share comes on top of static memory.

    1F1B's peak is that of the first route's stages, joined to one per device.
    """
    if isinstance(capacity, CapacityInBytes):
        raise BadInput("expected a number in the problem's own memory unit", where="memory")
    problem = parse_problem(document)
    if isinstance(capacity, Fraction):
        require_plain(problem, "a share of 1F1B's peak")
    capacities = capacities_of(problem, capacity)
    return changed_document(document, devices=[{"memory": memory} for memory in capacities])


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


Axes: TypeAlias = Mapping[str, Any]
"""Values of the axes that shape a problem; ``None`` where the grid has no such axis."""

_Amounts = Annotated[
    list[Amount],
    Field(min_length=1),
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
]


Source: TypeAlias = Callable[[Axes], dict[str, Any]]
"""Makes the document of a problem with these values; BadInput if there can be none."""


class NumbersModel(StrictModel):
    """A table ``[costs.NAME]`` of numbers, as ``pipesat problem new`` takes them."""

    F: _Amounts
    B: _Amounts
    W: _Amounts
    BW: _Amounts | None = None
    held_after_F: _Amounts = [0]
    held_after_B: _Amounts = [0]
    layers: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    static: _Amounts = [0]
    overlap: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    time_unit: str = ""
    memory_unit: str = ""


class ProfileModel(StrictModel):
    """A table ``[costs.NAME]`` that names a profile, as ``problem from-profile`` takes it."""

    profile: str
    links: str | None = None
    optimizer: Optimizer = "adamw"
    grad_dtype: Number | None = None
    state_dtype: Number | None = None
    master_dtype: Number | None = None
    receive: Receive = "torch"
    reserve: str = "0B"
    split_limit: Annotated[float, Field(ge=1, allow_inf_nan=False)] = SPLIT_LIMIT
    cost: Statistic = "median"


def from_numbers(name: str, model: NumbersModel) -> Source:
    """Make problems from costs per stage or layer, in a placement."""

    def document(axes: Axes) -> dict[str, Any]:
        if axes["backward"] == "auto":
            raise BadInput("only a profile can tell", where="backward", value="auto")
        capacity = read_capacity(axes["memory"]) if axes["memory"] is not None else None
        if isinstance(capacity, CapacityInBytes):
            raise BadInput(
                "expected a number in the costs' own unit", where="memory", value=axes["memory"]
            )
        told = ("layers", "overlap", "time_unit", "memory_unit")
        shape = ("devices", "microbatches", "chunks", "comm", "backward", "split")
        given = {key: getattr(model, key) for key in told} | {"memory": capacity}
        given |= {key: axes[key] for key in shape if axes[key] is not None}
        given |= {
            key: _one_or_all(getattr(model, key))
            for key in (*COSTS, "static")
            if getattr(model, key) is not None
        }
        with said_of(f"costs.{name}"):
            return document_of(axes["placement"] or "chain", given)

    return document


def from_profile(model: ProfileModel, folder: Path, source: str) -> Source:
    """Make problems from a measured profile's layers; files lie beside the sweep file."""
    training = Training(
        optimizer=model.optimizer,
        grad_dtype=model.grad_dtype,
        state_dtype=model.state_dtype,
        master_dtype=model.master_dtype,
        receive=model.receive,
        reserve=amount(f"{source}: reserve", model.reserve),
    )
    profile = read_profile(folder / model.profile)
    links = profile.links if model.links is None else read_links(folder / model.links)

    def document(axes: Axes) -> dict[str, Any]:
        placement: Any = axes["placement"] or "chain"
        if placement not in ONE_ROUTE:
            known = ", ".join(ONE_ROUTE)
            raise BadInput(
                f"expected one of {known} for a profile", where="placement", value=placement
            )
        capacity = None if axes["memory"] is None else read_capacity(axes["memory"])
        if isinstance(capacity, int | list):
            raise BadInput(
                "expected an amount with its unit, as 40GiB", where="memory", value=axes["memory"]
            )
        require_few(Geometry(placement, axes["devices"], axes["chunks"] or CHUNKS))
        document = problem_of_profile(
            profile,
            devices=axes["devices"],
            microbatches=axes["microbatches"],
            placement=placement,
            chunks=axes["chunks"] or CHUNKS,
            split=axes["split"] or "even",
            memory=capacity.count if isinstance(capacity, CapacityInBytes) else None,
            training=training,
            links=links if axes["comm"] is None else None,
            comm=axes["comm"] or 0,
            backward=axes["backward"] or "auto",
            split_limit=model.split_limit,
            statistic=model.cost,
        ).document
        if capacity is None or isinstance(capacity, CapacityInBytes):
            return document
        return with_capacity(document, capacity)

    return document


def from_problem(path: Path) -> Source:
    """Make problems from a file, as it is or with other microbatches or capacities."""
    given = read_problem(path).document

    def with_axes(axes: Axes) -> dict[str, Any]:
        document = dict(given)
        if axes["microbatches"] is not None:
            if "routes" in document:
                raise BadInput("the problem's routes say how many", where="microbatches")
            if not isinstance(document["microbatches"], int):
                raise BadInput("the problem's microbatches are a list", where="microbatches")
            document["microbatches"] = axes["microbatches"]
        if axes["memory"] is None:
            return document
        return with_capacity(document, read_capacity(axes["memory"]))

    return with_axes


def _one_or_all(values: list[int]) -> int | list[int]:
    """One number stands for every layer, stage or device."""
    return values[0] if len(values) == 1 else values
