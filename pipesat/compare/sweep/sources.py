"""Where the problems of a sweep come from: numbers, a measured profile, or problem files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from pipesat.compare.from_profile import problem_from_profile
from pipesat.core.amounts import amount
from pipesat.core.complaint import Says
from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.strict_json import MOST, Amount, Count, StrictModel
from pipesat.layers.profile.cut import Statistic
from pipesat.layers.profile.profile_file import read_links, read_profile
from pipesat.layers.profile.stages_of import SPLIT_LIMIT
from pipesat.layers.profile.static import Number, Optimizer, Receive
from pipesat.problem.making import made, share_of_1f1b
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import read_problem
from pipesat.problem.stage import COSTS

UNLIMITED: Final = "unlimited"


def _capacity(value: Any) -> Any:
    numbers = value if isinstance(value, list) and value else [value]
    if value == UNLIMITED or all(type(one) is int and 0 <= one <= MOST for one in numbers):
        return value
    with suppress(BadInput):
        if isinstance(value, str) and (share_of_1f1b(value) is not None or amount("", value)):
            return value
    raise ValueError


Capacity: TypeAlias = Annotated[
    Any,
    AfterValidator(_capacity),
    Says(
        'an integer, a list with one per device, "unlimited", a share as "1f1b*0.75", or an amount '
        'as "40GiB"'
    ),
]
"""A value of the ``memory`` axis."""


def with_axes(problem: Problem, axes: Axes) -> Problem:
    """Return a problem with the capacities that are asked for."""
    if axes["memory"] is None:
        return problem
    return problem.with_memory(None if axes["memory"] == UNLIMITED else axes["memory"])


Axes: TypeAlias = Mapping[str, Any]
"""Values of the axes that shape a problem; ``None`` where the grid has no such axis."""

_T = TypeVar("_T")
OneOrMore: TypeAlias = Annotated[
    list[_T],
    Field(min_length=1),
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
]
"""A list of values; one value alone is a list of length 1."""


Source: TypeAlias = Callable[[Axes], Problem]
"""Makes a problem with these values; BadInput if there can be none."""


class NumbersModel(StrictModel):
    """A table ``[costs.NAME]`` of numbers, as ``pipesat problem new`` takes them."""

    F: OneOrMore[Amount]
    B: OneOrMore[Amount]
    W: OneOrMore[Amount]
    BW: OneOrMore[Amount] | None = None
    held_after_F: OneOrMore[Amount] = [0]
    held_after_B: OneOrMore[Amount] = [0]
    layers: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    static: OneOrMore[Amount] = [0]
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
    told = model.model_dump(exclude_none=True)
    for key in {*COSTS, "static"} & told.keys():  # one number for every layer, stage or device
        told[key] = told[key][0] if len(told[key]) == 1 else told[key]

    def problem(axes: Axes) -> Problem:
        require(
            axes["backward"] != "auto", "only a profile can tell", where="backward", value="auto"
        )
        shape = ("placement", "devices", "microbatches", "chunks", "comm", "backward", "split")
        given = told | {key: axes[key] for key in shape if axes[key] is not None}
        with said_of(f"costs.{name}"):
            return with_axes(made({"placement": "chain"} | given), axes)

    return problem


def from_profile(model: ProfileModel, folder: Path, source: str) -> Source:
    """Make problems from a measured profile's layers; files lie beside the sweep file."""
    told = ("optimizer", "grad_dtype", "state_dtype", "master_dtype", "receive")
    training = model.model_dump(include={*told}, exclude_none=True)
    reserve = amount(f"{source}: reserve", model.reserve)
    profile = read_profile(folder / model.profile)
    links = profile.links if model.links is None else read_links(folder / model.links)

    def problem(axes: Axes) -> Problem:
        require(
            not isinstance(axes["memory"], int | list),
            "expected an amount with its unit, as 40GiB",
            where="memory",
            value=axes["memory"],
        )
        backward: Any = axes["backward"] or "auto"
        made = problem_from_profile(
            profile,
            axes["devices"],
            axes["microbatches"],
            placement=axes["placement"] or "chain",
            chunks=axes["chunks"],
            split=axes["split"] or "even",
            training=training,
            reserve=reserve,
            link_delay=axes["comm"],
            links=links if axes["comm"] is None else None,
            backward=backward,
            split_limit=model.split_limit if backward == "auto" else None,
            cost=model.cost,
        )
        return with_axes(made, axes)

    return problem


def from_problem(path: Path) -> Source:
    """Make problems from a file, as it is or with other microbatches or capacities."""
    given = read_problem(path)

    def problem(axes: Axes) -> Problem:
        changed = given
        if axes["microbatches"] is not None:
            require(
                not given.has_lists, "the problem's microbatches are a list", where="microbatches"
            )
            changed = given.with_microbatches(axes["microbatches"])
        return with_axes(changed, axes)

    return problem
