"""``pipesat layers``: show a layers file, make one from a profile or by an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import MOST_TOKENS, OutputFile, share
from pipesat.cli.exits import one_line
from pipesat.cli.naming import Commands
from pipesat.cli.training_options import (
    Cost,
    Dtype,
    MasterDtype,
    Optimizer,
    ProfileFile,
    Reserve,
    StatisticName,
)
from pipesat.core.rounding import rounded_down, rounded_up

if TYPE_CHECKING:
    from pipesat.layers.layer import Layer, Layers

app = Commands(
    help="Layers of a model, to be cut into stages: show, from a profile, or estimated.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LayersFile = Annotated[
    Path, typer.Argument(metavar="LAYERS", help="Layers file (JSON).", show_default=False)
]


@app.command()
def show(layers: LayersFile) -> None:
    """Show layers as a table, equal ones in a row on one line."""
    from pipesat.cli.console import stdout
    from pipesat.cli.table import Column, print_table, wrapped
    from pipesat.layers.file import read_layers

    data = read_layers(layers)
    heads = ("F", "B", "W", "BW", "held\nafter F", "held\nafter B", "static", "output")
    columns = [
        Column("layers", number=False),
        Column("", number=False),
        Column("role", number=False, spare=2),
        *(Column(head, spare={"output": 4, "held\nafter B": 3}.get(head, 0)) for head in heads),
        Column("flags", number=False, spare=1),
    ]
    rows = [_row(data, begin, end) for begin, end in _runs(data)]
    print_table(columns, rows)
    typer.echo("")
    for line in _summary(data):
        typer.echo(wrapped(one_line(line), stdout().width))


@app.command("from-profile")
def from_profile(
    profile: ProfileFile,
    output: OutputFile,
    optimizer: Optimizer = "adamw",
    grad_dtype: Dtype = None,
    state_dtype: Dtype = None,
    master_dtype: MasterDtype = None,
    reserve: Reserve = "0B",
    cost: Cost = StatisticName.median,
) -> None:
    """Write a layers file from a measured profile."""
    from pipesat.core.amounts import amount
    from pipesat.layers.file import write_layers
    from pipesat.workflows.from_profile import layers_from_profile

    layers = layers_from_profile(
        profile,
        cost=cost.value,
        optimizer=optimizer,
        grad_dtype=grad_dtype,
        state_dtype=state_dtype,
        master_dtype=master_dtype,
        reserve=amount("--reserve", reserve),
    )
    write_layers(output, layers)
    typer.echo(one_line(f"{len(layers)} layers, written to {output}"))


@app.command()
def estimate(
    output: OutputFile,
    config: Annotated[
        str, typer.Option(metavar="NAME", help="A published model's shape: profile --list-configs.")
    ],
    gpu: Annotated[str, typer.Option(metavar="NAME", help="a100, h100, h200, b200, l40s, mi300x.")],
    length: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_TOKENS,
            help="Tokens per sequence.",
            show_default="the model's",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_TOKENS, help="Sequences per microbatch.")
    ] = 1,
    tensor_parallel: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_TOKENS, help="GPUs that share every layer.")
    ] = 1,
    products: Annotated[
        float,
        typer.Option(
            metavar="X", callback=share, help="Share of the peak that matrix products reach."
        ),
    ] = 0.7,
    attention: Annotated[
        float,
        typer.Option(metavar="X", callback=share, help="Share of the peak that attention reaches."),
    ] = 0.4,
    traffic: Annotated[
        float,
        typer.Option(
            metavar="X", callback=share, help="Share of the memory's bandwidth that is reached."
        ),
    ] = 0.7,
) -> None:
    """Write a layers file of a published model without measuring: a roofline estimate.

    From its shape and the GPU's published peaks; a profile on your own GPU replaces it.
    """
    from pipesat.layers.file import write_layers
    from pipesat.layers.roofline import microbatch_time
    from pipesat.workflows.from_profile import estimate_layers

    layers = estimate_layers(
        config,
        gpu,
        length=length,
        batch=batch,
        tensor_parallel=tensor_parallel,
        products=products,
        attention=attention,
        traffic=traffic,
    )
    write_layers(output, layers)
    likely = microbatch_time(layers) / 1000
    least, most = (likely * share / 1000 for share in layers.estimate_range or (1000, 1000))
    typer.echo(
        one_line(
            f"{len(layers)} layers, written to {output}; estimate: a microbatch takes "
            f"{likely:.1f} ms in all, in the range {rounded_down(least, 1)} to "
            f"{rounded_up(most, 1)} ms; {layers.estimate}"
        )
    )


def _runs(layers: Layers) -> list[tuple[int, int]]:
    """Layers (begin, end) that differ in their names alone, and are not tied."""
    runs: list[tuple[int, int]] = []
    for number, layer in enumerate(layers.layers):
        if runs and not layer.tied_to and _nameless(layer) == _nameless(layers.layers[number - 1]):
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


def _nameless(layer: Layer) -> Layer:
    from dataclasses import replace

    return replace(layer, name="")


def _row(layers: Layers, begin: int, end: int) -> list[str]:
    layer = layers.layers[begin]
    last = f" to {layers.layers[end - 1].name}" if end - begin > 1 else ""
    flags = [flag for flag in ("first", "last", "with_next", "fused") if getattr(layer, flag)]
    if layer.tied_to:
        flags.append(f"tied to {layer.tied_to}, {layer.tie.replace('_', ' ')}")
    if layer.recomputed is not None:
        flags.append("recompute")
    times = (str(layer.amount(kind)) for kind in ("F", "B", "W", "BW"))
    held = (str(layer.amount(kind)) for kind in ("held_after_F", "held_after_B"))
    where = f"{begin} to {end - 1}" if last else str(begin)
    weights = str(layers.static[begin])
    name, output = layer.name + last, str(layer.output)
    return [where, name, layer.role, *times, *held, weights, output, ", ".join(flags)]


def _range(layers: Layers) -> str:
    if layers.estimate_range is None:
        return ""
    least, most = (share / 1000 for share in layers.estimate_range)
    return f"; times may be {rounded_down(least, 2)} to {rounded_up(most, 2)} of these"


def _summary(layers: Layers) -> list[str]:
    def total(kind: str) -> int:
        return sum(layers.amounts(kind))

    def unit(text: str) -> str:
        return f" {text}" if text else ""

    held, static = total("held_after_F"), sum(layers.static)
    memory = unit(layers.memory_unit)
    lines = [
        f"{len(layers)} layers{': ' if layers.name else ''}{layers.name}; a microbatch takes "
        f"F {total('F')} + BW {total('BW')}{unit(layers.time_unit)} in all and holds "
        f"{held}{memory}; weights, gradients and optimizer take {static}{memory}, every device "
        f"keeps {layers.reserve}{memory} besides"
    ]
    if layers.estimate:
        lines.append(f"times and memory are an estimate: {layers.estimate}{_range(layers)}")
    if layers.recipe is not None:
        recipe = layers.recipe
        per_weight = recipe.parts(1)
        lines.append(
            f"one weight takes {sum(per_weight)} bytes: {per_weight.weights} itself "
            f"({recipe.dtype}), {per_weight.gradients} its gradient, {per_weight.optimizer} in "
            f"{recipe.optimizer}"
        )
    return lines
