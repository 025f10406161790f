"""``pipesat problem from-profile``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import typer

from pipesat.cli.arguments import MOST_AMOUNT, SplitName
from pipesat.cli.exits import one_line
from pipesat.cli.problem_options import Chunks, Output
from pipesat.cli.training_options import (
    Cost,
    Dtype,
    MasterDtype,
    Optimizer,
    ProfileFile,
    Reserve,
    StatisticName,
)
from pipesat.core.claims import plural
from pipesat.placement.geometry import OneRoutePlacement

if TYPE_CHECKING:
    from pipesat.profile.modes import ModeName
    from pipesat.profile.problem import Derived


class ProfileBackwardName(StrEnum):
    """Which backwards may run."""

    auto = "auto"
    always_split = "split"
    always_fused = "fused"
    either = "either"


class ReceiveName(StrEnum):
    """How receive buffers are allocated."""

    torch = "torch"
    held = "held"


def from_profile(
    context: typer.Context,
    profile: ProfileFile,
    devices: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=4096, help="Pipeline ranks.", show_default=False),
    ] = None,
    microbatches: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=MOST_AMOUNT, help="Microbatches.", show_default=False),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Write the layers, for plan and advise to cut.")
    ] = False,
    placement: Annotated[OneRoutePlacement, typer.Option(help="Where the stages lie.")] = "chain",
    chunks: Chunks = None,
    split: Annotated[
        SplitName,
        typer.Option("--cut", help="Layers per stage: equally many, or so that times balance."),
    ] = SplitName.even,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT[,AMOUNT...]",
            show_default="unlimited",
            help="Capacity as 40GiB, one for all devices or one each.",
        ),
    ] = None,
    optimizer: Optimizer = "adamw",
    grad_dtype: Dtype = None,
    state_dtype: Dtype = None,
    master_dtype: MasterDtype = None,
    receive: Annotated[
        ReceiveName,
        typer.Option(help="Receive buffers of all microbatches, as torch 2.13, or held as needed."),
    ] = ReceiveName.torch,
    reserve: Reserve = "0B",
    comm: Annotated[
        int | None,
        typer.Option(
            "--link-delay",
            metavar="US",
            min=0,
            max=MOST_AMOUNT,
            help="Delay of every link.",
            show_default="as measured, or 0",
        ),
    ] = None,
    links: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measured delays from another file.")
    ] = None,
    backward: Annotated[
        ProfileBackwardName,
        typer.Option(help="auto: fused where splitting does not pay, else either."),
    ] = ProfileBackwardName.auto,
    split_limit: Annotated[
        float,
        typer.Option(metavar="RATIO", min=1.0, max=1e6, help="Largest (B + W) / BW that may pay."),
    ] = 1.5,
    cost: Cost = StatisticName.median,
    modes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            show_default="those that the profile has",
            help="Memory modes of the stages: recompute, offload, none.",
        ),
    ] = None,
    copy_bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            show_default="as measured on a GPU",
            help="Per second between a device and its host, as 20GiB; gives the offload mode.",
        ),
    ] = None,
    copy_channels: Annotated[
        int, typer.Option(metavar="N", min=1, max=2, help="For both directions, or one each.")
    ] = 2,
    name: Annotated[str, typer.Option(help="For tables and pictures.")] = "",
    output: Output = None,
) -> None:
    """Write a problem from a measured profile.

    For example: pipesat problem from-profile profile.json --devices 4 --microbatches 8.
    """
    from pipesat.cli.options import refuse_given
    from pipesat.cli.problem import chunks_of, write_problem
    from pipesat.core.amounts import amount, amounts
    from pipesat.core.errors import BadInput
    from pipesat.workflows.from_profile import problem_from_profile

    trained: _Trained = {
        "cost": cost.value,
        "optimizer": optimizer,
        "grad_dtype": grad_dtype,
        "state_dtype": state_dtype,
        "master_dtype": master_dtype,
        "reserve": amount("--reserve", reserve),
    }
    if layers:
        others = {"profile", "output", "layers", *_Trained.__annotations__}
        names = [each for each in context.params if each not in others]
        refuse_given(context, names, "--layers writes layers, which are not cut")
        _write_layers(profile, output, trained)
        return
    if devices is None or microbatches is None:
        option = "--devices" if devices is None else "--microbatches"
        raise BadInput("expected it, or --layers", where=option)
    v = chunks_of(placement, chunks)
    if backward is not ProfileBackwardName.auto:
        refuse_given(
            context, ["split_limit"], "it decides between backwards only where --backward is auto"
        )
    derived: list[Derived] = []
    problem = problem_from_profile(
        profile,
        devices,
        microbatches,
        placement=placement,
        chunks=v,
        split=split.value,
        memory=None if memory is None else amounts("--memory", memory),
        comm=comm,
        links=links,
        backward=backward.value,
        split_limit=split_limit,
        name=name,
        modes=None if modes is None else _modes(modes),
        copy_bandwidth=(
            None if copy_bandwidth is None else amount("--copy-bandwidth", copy_bandwidth)
        ),
        copy_channels=1 if copy_channels == 1 else 2,
        details=derived.append,
        receive=receive.value,
        **trained,
    )
    write_problem(dict(problem.document), output, str(profile))
    _print_summary(derived[0])
    if not derived[0].measured_links and comm is None:
        typer.echo("links: no delay was measured or given; all are 0 (--link-delay US)", err=True)


class _Trained(TypedDict):
    """How measured layers are trained."""

    cost: Literal["low", "median", "high"]
    optimizer: str
    grad_dtype: str | None
    state_dtype: str | None
    master_dtype: str | None
    reserve: int


def _write_layers(profile: Path, output: Path | None, trained: _Trained) -> None:
    from pipesat.files.atomic import write_file
    from pipesat.layers.file import layers_bytes
    from pipesat.workflows.from_profile import layers_from_profile

    layers = layers_from_profile(profile, **trained)
    if output is None:
        typer.echo(layers_bytes(layers).decode(), nl=False)
        return
    write_file(output, layers_bytes(layers))
    typer.echo(one_line(f"{len(layers)} layers, written to {output}"))


def _modes(text: str) -> list[ModeName]:
    from pipesat.cli.options import refuse_repeated
    from pipesat.core.errors import BadInput
    from pipesat.profile.modes import MODES

    if text == "none":
        return []
    words = [word.strip() for word in text.split(",")]
    refuse_repeated("--modes", words, text)
    if set(words) - set(MODES):
        raise BadInput("expected recompute, offload, both or none", where="--modes", value=text)
    return [name for name in MODES if name in words]


def _print_summary(derived: Derived) -> None:
    """Say on stderr what the numbers consist of: the problem itself may be on stdout."""
    from pipesat.cli.table import Column, print_table
    from pipesat.core.amounts import readable

    heads = ("", "layers", "F", "B", "W", "BW", "held\nafter F", "held\nafter B")
    rows = []
    for number, stage in enumerate(derived.stages):
        where = f"{stage.layers.start} to {stage.layers.stop - 1}"
        times = (f"{time:.0f}" for time in (stage.F, stage.B, stage.W, stage.BW))
        held = (readable(stage.held_after_F), readable(stage.held_after_B))
        rows.append([f"stage {number}", where, *times, *held])
    print_table([Column(head, number=bool(head)) for head in heads], rows, err=True)
    typer.echo("", err=True)
    kinds = ("weights", "gradients", "optimizer", "buffers", "receive", "transient", "reserve")
    amounts = [
        [f"device {number}", *(readable(getattr(static, kind)) for kind in (*kinds, "total"))]
        for number, static in enumerate(derived.static)
    ]
    columns = [Column("static", number=False), *map(Column, (*kinds, "total"))]
    print_table(columns, amounts, err=True)
    typer.echo("", err=True)
    for reason in dict.fromkeys(filter(None, derived.fused)):
        stages = [str(number) for number, why in enumerate(derived.fused) if why == reason]
        of = f"{plural(len(stages), 'stage')} {', '.join(stages)}"
        typer.echo(one_line(f"fused backward of {of}: {reason}"), err=True)
    for line in derived.remarks:
        typer.echo(one_line(line), err=True)
