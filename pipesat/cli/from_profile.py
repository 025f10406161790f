"""``pipesat problem from-profile``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command
from pipesat.cli.exits import note
from pipesat.core.claims import plural
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.profile.problem import Derived

_LAYERS = click.Option(
    ["--layers"], is_flag=True, help="Write the layers, for plan and advise to cut."
)


@command(
    "workflows.from_profile:problem_from_profile",
    example="pipesat problem from-profile profile.json --devices 4 --microbatches 8",
    names={"split": "--cut"},
    metavars={
        "memory": "AMOUNT[,AMOUNT...]",
        "training": "KEY=VALUE[,...]",
        "reserve": "AMOUNT",
        "copy_bandwidth": "AMOUNT",
        "link_delay": "US",
        "links": "FILE",
    },
    follow={
        "placement": ("chunks",),
        "memory": ("reserve",),
        "modes": ("copy_bandwidth", "copy_channels"),
        "backward": ("split_limit",),
    },
    without=("details",),
    optional=("devices", "microbatches"),
    extra=(_LAYERS,),
    output="[FILE]",
)
def from_profile(asked: Asked) -> None:
    """Write a problem from a measured profile, or print it (without -o)."""
    from pipesat.cli.problem import write_problem

    if asked["layers"]:
        _write_layers(asked)
        return
    for name in ("devices", "microbatches"):
        if asked[name] is None:
            raise BadInput("expected it, or --layers", where=f"--{name}")
    derived: list[Derived] = []
    write_problem(asked, asked.answer(details=derived.append))
    _print_summary(derived[0])
    if not derived[0].measured_links and asked["link_delay"] is None:
        note("links: no delay was measured or given; all are 0 (--link-delay US)")


def _write_layers(asked: Asked) -> None:
    from pipesat.files.atomic import write_file
    from pipesat.layers.file import layers_bytes
    from pipesat.workflows.from_profile import layers_from_profile

    kept = {"profile", "output", "layers", "as_json", "training", "reserve", "cost"}
    others = [name for name in asked.given if name not in kept]
    asked.refuse(others, "--layers writes layers, which are not cut")
    layers = asked.other(layers_from_profile).answer()
    if asked.output is not None:
        write_file(asked.output, layers_bytes(layers))
    if asked.output is None or asked["as_json"]:
        click.echo(layers_bytes(layers).decode(), nl=False)
    else:
        click.echo(f"{len(layers)} layers, written to {asked.output}")


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
    note("")
    kinds = ("weights", "gradients", "optimizer", "buffers", "receive", "transient", "reserve")
    amounts = [
        [f"device {number}", *(readable(getattr(static, kind)) for kind in (*kinds, "total"))]
        for number, static in enumerate(derived.static)
    ]
    columns = [Column("static", number=False), *map(Column, (*kinds, "total"))]
    print_table(columns, amounts, err=True)
    note("")
    for reason in dict.fromkeys(filter(None, derived.fused)):
        stages = [str(number) for number, why in enumerate(derived.fused) if why == reason]
        note(f"fused backward of {plural(len(stages), 'stage')} {', '.join(stages)}: {reason}")
    for line in derived.remarks:
        note(line)
