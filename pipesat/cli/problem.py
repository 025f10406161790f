"""``pipesat problem``: new, from-profile, estimate, examples; pairs is in a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.commands import Group, command
from pipesat.cli.exits import note, one_line
from pipesat.cli.options import settings
from pipesat.core.amounts import rounded_down, rounded_up
from pipesat.core.claims import plural
from pipesat.core.errors import BadInput

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.problem import Problem
    from pipesat.layers.layer import Layers
    from pipesat.profile.problem import Derived


app = Group(
    "problem",
    "Describe your pipeline: from numbers, a profile, an estimate.",
    {
        "Commands": {
            "new": "problem",
            "from-profile": "problem:from_profile",
            "estimate": "problem",
            "pairs": "pairs",
            "examples": "problem",
        }
    },
)


@command(
    "workflows.from_numbers:problem_from_numbers",
    example="pipesat problem new --devices 4 --microbatches 8 --times F=10,B=10,W=8",
    names={"split": "--cut"},
    metavars={
        "lengths": "FILE",
        "held_after_F": "N[,N...]",
        "held_after_B": "N[,N...]",
        "memory": "N[,N...]",
        "static": "N[,N...]",
        "quadratic": "SHARE",
        "tolerance": "SHARE",
        "overlap": "NUM/DEN",
        "pair_time": "[KIND+KIND=]TIME",
    },
    follow={
        "times": ("F", "B", "W", "BW"),
        "held": {"after_F": "held_after_F", "after_B": "held_after_B"},
        "lengths": ("order",),
        "placement": ("chunks",),
        "memory": ("static",),
        "units": {"time": "time_unit", "memory": "memory_unit"},
    },
    extra=(
        settings("times", "Costs, one for all or a list with one each."),
        settings("held", "Memory, one for all or a list with one each."),
        settings("units", "Units of all times and all memory."),
    ),
    output="[FILE]",
)
def new(asked: Asked) -> None:
    """Write a problem from costs of stages, or of layers.

    A cost is one number for every stage (with --layers: for every layer), or a list with one each.
    Lists that are longer than there are stages are of layers. Without -o, it is printed.
    """
    write_problem(asked, asked.answer())


def write_problem(asked: Asked, problem: Problem) -> None:
    """Write a problem into a file, or on stdout."""
    from pipesat.files.atomic import write_file
    from pipesat.files.problem_file import problem_text

    text = problem_text(problem.document)
    if asked.output is not None:
        write_file(asked.output, text.encode())
    if asked.output is None or asked["as_json"]:
        click.echo(text, nl=False)
        return
    counts = f"{len(problem.devices)} devices, {len(problem.stages)} stages"
    microbatches = sum(route.microbatches for route in problem.routes)
    click.echo(one_line(f"{counts}, {microbatches} microbatches, written to {asked.output}"))


def written(folder: Path = Path("examples")) -> dict[str, bytes]:
    """Write the shipped examples into a folder; return them by name.

    Parameters
    ----------
    folder
        Where to write them; ``None``: examples.
    """
    from importlib.resources import files

    from pipesat.files.atomic import prepare_folder, write_files

    found = (entry for entry in files("pipesat").joinpath("examples").iterdir() if entry.is_file())
    shipped = {entry.name: entry.read_bytes() for entry in found}
    prepare_folder(folder)
    write_files(folder, shipped)
    return shipped


@command("cli.problem:written", names={"folder": "[DIR]"}, example="pipesat problem examples")
def examples(asked: Asked) -> None:
    """Write the shipped examples into a folder."""
    shipped, folder = asked.answer(), asked["folder"]
    if asked["as_json"]:
        from pipesat.cli.terminal import print_json

        print_json(sorted(str(folder / name) for name in shipped))
        return
    click.echo(one_line(f"{len(shipped)} files, written to {folder}: begin with README.md"))


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
    from pipesat.cli.terminal import Column, print_table
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
    from pipesat.cli.terminal import print_json
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
