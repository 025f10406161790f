"""``pipesat problem estimate``."""

from __future__ import annotations

from typing import Annotated

import typer

from pipesat.cli.arguments import MOST_TOKENS, OutputFile, share
from pipesat.cli.exits import one_line
from pipesat.core.rounding import rounded_down, rounded_up


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
