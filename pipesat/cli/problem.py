"""The commands profile and problem: new, from-profile, estimate, examples."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipesat.cli.asked import listing
from pipesat.cli.commands import Group, command
from pipesat.cli.derived import settings
from pipesat.cli.exits import note
from pipesat.cli.terminal import print_answer
from pipesat.core.amounts import readable, rounded_down, rounded_up
from pipesat.core.errors import require
from pipesat.core.showing import Said, table_of
from pipesat.problem.ops import KINDS

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.layers.layer import Layers
    from pipesat.layers.profile.profile_file import Profile
    from pipesat.layers.profile.stages_of import Derived
    from pipesat.problem.problem import Problem


app = Group(
    "problem",
    "Describe your pipeline: from numbers, a profile, an estimate.",
    {
        "Commands": {
            "new": "problem",
            "from-profile": "problem:from_profile",
            "estimate": "problem",
            "examples": "problem",
        }
    },
)


@command(
    "compare.from_numbers:problem_from_numbers",
    example="pipesat problem new --devices 4 --microbatches 8 --times F=10,B=10,W=8",
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
        "times": ("F", "B", "W", "BW", "layers"),
        "lengths": ("order",),
        "placement": {"chunks": "chunks", "cut": "split"},
        "memory": ("static", "held_after_F", "held_after_B"),
        "overlap": {"pair": "pair_time"},
        "units": {"time": "time_unit", "memory": "memory_unit"},
    },
    extra=(
        settings("times", "Costs, one for all or a list with one each."),
        settings("units", "Units of all times and all memory."),
    ),
    output="[FILE]",
)
def new(asked: Asked) -> None:
    """Write a problem from costs of stages, or of layers.

    A cost is one number for every stage (with layers=N: for every layer), or a list with one each.
    Lists that are longer than there are stages are of layers. Without -o, it is printed.
    """
    costs = [asked.given.get(name) for name in ("F", "B", "W", "BW")]
    lists = [len(one) for one in costs if isinstance(one, list)]
    write_problem(asked, asked.answer(), max([asked.given.get("layers", 0), *lists]))


def write_problem(asked: Asked, problem: Problem, layers: int = 0) -> None:
    """Write a problem into a file, or on stdout; say of how many ``layers`` its stages are cut."""
    from pipesat.problem.problem_file import problem_text

    said = repr(problem).strip("<>").removeprefix("Problem: ")
    if layers > len(problem.routes[0].stages):
        said = said.replace(" stages", f" stages of {layers} layers", 1)
    _write(asked, problem_text(problem.document), ("Problem", said))


def _write(asked: Asked, text: str, said: tuple[str, str]) -> None:
    from pipesat.core.atomic import write_file

    if asked.output is not None:
        write_file(asked.output, text.encode())
    if asked.output is None or asked["as_json"]:
        click.echo(text, nl=False)
    else:
        asked.show(Said([said]), None)


def written(folder: Path = Path("examples")) -> dict[str, bytes]:
    """Write the shipped examples into a folder; return them by name.

    Parameters
    ----------
    folder
        Where to write them; ``None``: examples.
    """
    from importlib.resources import files

    from pipesat.core.atomic import prepare_folder, write_files

    found = (entry for entry in files("pipesat").joinpath("examples").iterdir() if entry.is_file())
    shipped = {entry.name: entry.read_bytes() for entry in found}
    prepare_folder(folder)
    write_files(folder, shipped)
    return shipped


@command("cli.problem:written", names={"folder": "[DIR]"}, example="pipesat problem examples")
def examples(asked: Asked) -> None:
    """Write the shipped examples into a folder."""
    shipped, folder = asked.answer(), asked["folder"]
    said = Said([("Written to", f"{folder}: {len(shipped)} files, begin with README.md")])
    asked.show(said, sorted(str(folder / name) for name in shipped))


_LAYERS = click.Option(
    ["--layers"], is_flag=True, help="Write the layers, for plan and advise to cut."
)


@command(
    "compare.from_profile:problem_from_profile",
    also={"--layers": "compare.from_profile:layers_from_profile"},
    example="pipesat problem from-profile profile.json --devices 4 --microbatches 8",
    metavars={
        "memory": "AMOUNT[,AMOUNT...]",
        "training": "KEY=VALUE[,...]",
        "reserve": "AMOUNT",
        "copy_bandwidth": "AMOUNT",
        "link_delay": "US",
        "links": "FILE",
    },
    follow={
        "placement": {"chunks": "chunks", "cut": "split"},
        "link_delay": {"file": "links"},
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
        layers: Layers = asked.instead("--layers").answer()
        _write(asked, layers.file().decode(), ("Layers", str(len(layers))))
        return
    for name in ("devices", "microbatches"):
        require(asked[name] is not None, "expected it, or --layers", where=f"--{name}")
    derived: list[Derived] = []
    write_problem(asked, asked.answer(details=derived.append))
    print_answer(_made_of(derived[0]), err=True)  # the problem itself may be on stdout
    if not derived[0].measured_links and asked["link_delay"] is None:
        note("links: no delay was measured or given; all are 0 (--link-delay US)")


def _made_of(derived: Derived) -> Said:
    """Say what the numbers consist of."""
    stages = [
        {"stage": number, "layers": f"{stage.layers.start} to {stage.layers.stop - 1}"}
        | {kind: round(getattr(stage, kind)) for kind in KINDS}
        | {kind: readable(getattr(stage, kind)) for kind in ("held_after_F", "held_after_B")}
        for number, stage in enumerate(derived.stages)
    ]
    static = [
        {"device": number}
        | {kind: readable(amount) for kind, amount in asdict(own).items()}
        | {"static": readable(own.total)}
        for number, own in enumerate(derived.static)
    ]
    said = [("Fused", f"stage {n}: {why}") for n, why in enumerate(derived.fused) if why]
    said += [("Note", text) for text in derived.remarks]
    return Said(said, [table_of(stages), table_of(static)])


@command(
    "compare.from_profile:estimate_layers",
    example="pipesat problem estimate --config llama3-8b --gpu h100 -o layers.json",
    metavars={"config": "NAME", "gpu": "NAME", "shape": "KEY=VALUE[,...]"},
    follow={
        "shape": ("length", "batch", "tensor_parallel"),
        "gpu": ("products", "attention", "traffic"),
    },
    output="FILE",
)
def estimate(asked: Asked) -> None:
    """Estimate a published model's layers without a GPU.

    From its shape and the GPU's published peaks. A profile on your own GPU replaces it.
    """
    from pipesat.layers.roofline import microbatch_time

    layers: Layers = asked.answer()
    layers.write(asked["output"])
    likely = microbatch_time(layers) / 1000
    least, most = (likely * share / 1000 for share in layers.estimate_range or (1000, 1000))
    took = f"{likely:.1f} ms in all, in the range {rounded_down(least, 1)} to {rounded_up(most, 1)}"
    said = [
        ("Layers", str(len(layers))),
        ("Microbatch", f"{took} ms"),
        ("Doubt", f"an estimate: {layers.estimate}"),
    ]
    asked.show(Said(said), layers.document)


def _configurations() -> list[dict[str, Any]]:
    from pipesat.layers.profile.published import SHAPES

    return [
        {"name": name} | asdict(one.shape) | {"length": one.length, "source": one.source}
        for name, one in SHAPES.items()
    ]


_LISTED = listing("--list", "List the configurations and their sources, and exit.", _configurations)


@command(
    "profile",
    example="pipesat profile --config tiny --shape batch=4 --samples 20 -o profile.json",
    metavars={
        "config": "NAME",
        "model": "MODULE:FUNCTION",
        "shape": "KEY=VALUE[,...]",
        "compile": "BACKEND",
    },
    follow={
        "device": ("dtype", "threads", "compile", "checkpoint"),
        "samples": ("warm_up", "timeout"),
        "stages": {"cut": "split"},
        "measure": {"modes": "measure_modes", "links": "measure_links"},
    },
    extra=(_LISTED, settings("measure", "Measure these, too.")),
    output="FILE",
)
def profile(asked: Asked) -> None:
    """Measure F, B, W, BW and memory of your model's layers.

    Needs PyTorch: pip install 'torch>=2.13'.
    """
    from pipesat.layers.profile.profile_file import write_document

    measured: Profile = asked.answer()
    write_document(asked["output"], measured)
    asked.show(measured, measured.model_dump)
