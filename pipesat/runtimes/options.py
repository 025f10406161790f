"""What an export needs besides problem and schedule, and the checks that frameworks share.

Which frameworks can load an order: they know placements by a schedule's name alone.

torchtitan and NeMo AutoModel both take any order from a CSV, but derive "which rank holds which
stage" from the schedule name beside it: a loop (rank r holds r, r + p, r + 2p, ...) or a V of
exactly two stages per rank (r and 2p - 1 - r), the latter only for ``ZBVZeroBubble``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from pipesat.core.errors import require, require_applicable
from pipesat.core.torch_releases import release_named
from pipesat.problem.geometry import Geometry
from pipesat.problem.problem import Problem

Checkpointing: TypeAlias = Literal["none", "full"]
"""Activation checkpointing of all layers alike: the only switch that frameworks have."""
CHECKPOINTING: Final = get_args(Checkpointing)
MOST_LAYERS = 100_000
_COMMENT = 96  # characters of a comment's line
_SHOWN = 16  # stages whose ranks are named


@dataclass(frozen=True)
class Options:
    """The file that is written, and how many transformer layers the model has, if known.

    ``layers`` is their number in all, which the stages share equally, or one number per stage in
    the order of the route. The embedding belongs to the first stage, the head and the loss to the
    last. ``exact``: torch's
    order is the schedule's, or none is written. ``remark``: what has to be done besides, for the
    comments of the configuration and the top of the hazards. ``checkpointing`` is written into a
    framework's configuration; ``None``: off where backwards are split, else its own default.
    ``pattern``: of a hybrid model's layers, for Megatron-LM. ``layout``: what its layout is, where
    it has MTP layers too; ``flags``: more lines of its file. ``version``: torch's release.
    ``batch``: sequences of a microbatch. ``tensor_parallel``: GPUs that share every layer.
    """

    output: Path = Path("schedule")
    layers: int | Sequence[int] | None = None
    exact: bool = False
    remark: str = ""
    checkpointing: Checkpointing | None = None
    pattern: str | None = None
    layout: str | None = None
    flags: tuple[str, ...] = ()
    version: str | None = None
    batch: int = 1
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        release_named(self.version)
        require(
            self.remark.isprintable(),
            "expected one line of printable characters",
            where="remark",
            value=self.remark,
        )
        require(
            self.checkpointing in (None, *CHECKPOINTING),
            f"expected {' or '.join(CHECKPOINTING)}",
            where="checkpointing",
            value=self.checkpointing,
        )

    @property
    def comments(self) -> list[str]:
        """The remark as comment lines of a configuration."""
        return [f"# {line}" for line in textwrap.wrap(self.remark, _COMMENT)]

    def checkpointing_for(self, *, splits: bool) -> Checkpointing | None:
        """Return what the configuration says of checkpointing for an order; ``None``: nothing."""
        require(
            not splits or self.checkpointing != "full",
            "expected none: the order splits backwards, whose cost it would multiply",
            where="checkpointing",
            value=self.checkpointing,
        )
        return "none" if splits else self.checkpointing

    @property
    def csv(self) -> str:
        """Name of the CSV beside the file, as a text that can stand in any configuration."""
        text = self.output.with_suffix(".csv").name
        require(
            text.isprintable(), "expected a path of printable characters", where="path", value=text
        )
        return text

    def layers_of(self, problem: Problem) -> tuple[int, ...] | None:
        """Layers of every stage, in the order of the route; ``None`` if unknown."""
        if self.layers is None:
            return None
        stages = len(problem.routes[0].stages)
        layers = (self.layers,) if isinstance(self.layers, int) else tuple(self.layers)
        if len(layers) == 1 < stages:
            each, rest = divmod(layers[0], stages)
            require(
                rest == 0,
                f"{layers[0]} layers in all, expected a multiple of {stages}, the stages, or one "
                "number per stage",
                where="layers",
            )
            layers = (each,) * stages
        require(
            len(layers) == stages,
            f"{len(layers)} numbers, expected {stages}, one per stage, or their sum",
            where="layers",
        )
        require(
            1 <= sum(layers) <= MOST_LAYERS,
            f"{sum(layers)} layers in all, expected from 1 to {MOST_LAYERS}",
            where="layers",
        )
        return layers


def told_of(layers: Sequence[int]) -> str:
    """Say how many layers there are in all, and where."""
    each = [*dict.fromkeys(layers)]
    where = f"{each[0]} on each" if len(each) == 1 else f"{', '.join(map(str, layers))} on them"
    return f"{sum(layers)} transformer layers in all, {len(layers)} stages: {where}"


Cut: TypeAlias = tuple[str, tuple[int, ...] | None]
"""The name of a placement, and the layers of every stage if they are given."""


def cut_of(problem: Problem, options: Options, framework: str) -> Cut:
    """Return the name of a placement that they know, and each stage's layers.

    Without layers the framework cuts them itself: one stage per rank for a single-stage schedule,
    else two.
    """
    layers = options.layers_of(problem)
    per_rank = len(problem.stages) // len(problem.devices)
    require_applicable(
        layers is not None or per_rank <= 2,
        f"{framework} makes two stages per rank unless it is told how to cut the model, this "
        f"problem has {per_rank}: give the export `layers`",
    )
    return str(loader_for(problem).schedule_name), layers


def module_names(
    layers: tuple[int, ...], *, first: list[str], layer: str, last: list[str], every: list[str]
) -> list[list[str]]:
    """Names of every stage's modules, its layers numbered on from those of the stages before it."""
    names = []
    number = 0
    for stage, count in enumerate(layers):
        inside = [f"{layer}.{i}" for i in range(number, number + count)]
        number += count
        ends = last if stage == len(layers) - 1 else []
        names.append([*(first if stage == 0 else []), *inside, *ends, *every])
    return names


def rendered(
    template: str, *, filters: Mapping[str, Callable[[Any], str]] | None = None, **of: object
) -> str:
    """Return a file that is written from a template of Jinja's, whose blocks have own lines."""
    from jinja2 import Environment, StrictUndefined  # 50 ms, which only an export needs

    templates = Environment(  # noqa: S701  no markup
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    templates.filters |= filters or {}
    return templates.from_string(template).render(of)


class Loader(NamedTuple):
    """The schedule name that gives a problem's placement, or ``None`` and the reason why none."""

    schedule_name: str | None
    reason: str


def loader_for(problem: Problem) -> Loader:
    """Return the schedule name for torchtitan and NeMo AutoModel."""
    placement = tuple(problem.stages[stage].device for stage in problem.routes[0].stages)
    ranks, stages = len(problem.devices), len(placement)
    if placement == Geometry("loop", ranks, stages // ranks).homes:
        name = "PipelineScheduleSingle" if stages == ranks else "PipelineScheduleMulti"
        return Loader(name, "loop: rank r holds stages r, r + p, ...")
    if placement == Geometry("vee", ranks).homes:
        return Loader("ZBVZeroBubble", "V: rank r holds stages r and 2p - 1 - r")
    ranks_of = ", ".join(map(str, placement[:_SHOWN])) + ", …" * (len(placement) > _SHOWN)
    return Loader(
        None,
        "stages must lie in a loop (stage s on rank s mod p, equally many per rank) or in a V of "
        f"two stages per rank; here stage by stage they lie on ranks {ranks_of}",
    )
