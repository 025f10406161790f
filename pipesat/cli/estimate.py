"""``pipesat problem estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.commands import settings
from pipesat.cli.exits import one_line
from pipesat.core.amounts import rounded_down, rounded_up

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.layers.layer import Layers


@command(
    "workflows.from_profile:estimate_layers",
    example="pipesat problem estimate --config llama3-8b --gpu h100 -o layers.json",
    metavars={"config": "NAME", "gpu": "NAME"},
    follow={
        "shape": ("length", "batch", "tensor_parallel"),
        "gpu": ("products", "attention", "traffic"),
    },
    extra=(settings("shape", "Sizes of the run."),),
    output="FILE",
)
def estimate(asked: Asked) -> None:
    """Estimate a published model's layers without a GPU.

    From its shape and the GPU's published peaks. A profile on your own GPU replaces it.
    """
    from pipesat.cli.console import print_json
    from pipesat.layers.file import layers_document, write_layers
    from pipesat.layers.roofline import microbatch_time

    layers: Layers = asked.answer()
    write_layers(asked["output"], layers)
    if asked["as_json"]:
        print_json(layers_document(layers))
        return
    likely = microbatch_time(layers) / 1000
    least, most = (likely * share / 1000 for share in layers.estimate_range or (1000, 1000))
    click.echo(
        one_line(
            f"{len(layers)} layers, written to {asked.output}; estimate: a microbatch takes "
            f"{likely:.1f} ms in all, in the range {rounded_down(least, 1)} to "
            f"{rounded_up(most, 1)} ms; {layers.estimate}"
        )
    )
