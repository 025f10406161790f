"""``pipesat layers``: a layers file from a profile or by an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipesat.cli.arguments import MOST_TOKENS, OutputFile, share
from pipesat.cli.exits import one_line
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

app = typer.Typer(
    help="Layers of a model, to be cut into stages: from a profile, or estimated.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LayersFile = Annotated[
    Path, typer.Argument(metavar="LAYERS", help="Layers file (JSON).", show_default=False)
]


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
