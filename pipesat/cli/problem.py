"""``pipesat problem new`` and ``examples``; the others have modules of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipesat.cli.arguments import MOST_AMOUNT, SplitName
from pipesat.cli.commands import Group
from pipesat.cli.exits import one_line
from pipesat.cli.problem_options import (
    BackwardInput,
    BackwardKind,
    BackwardName,
    BackwardWeight,
    Chunks,
    Comm,
    Devices,
    Forward,
    Fused,
    HeldAfterB,
    HeldAfterF,
    Layers,
    Lengths,
    Memory,
    Order,
    OrderName,
    Output,
    Overlap,
    PairTime,
    PlacementName,
    Quadratic,
    Reference,
    Split,
    Static,
    Tolerance,
)
from pipesat.placement.geometry import CHUNKS, Placement

if TYPE_CHECKING:
    from pipesat.placement.documents import CapacityChoice

app = Group(
    "problem",
    "Describe your pipeline: from numbers, a profile, an estimate.",
    {
        "Commands": {
            "new": "problem",
            "from-profile": "from_profile:from_profile",
            "estimate": "estimate",
            "pairs": "pairs",
            "examples": "problem",
        }
    },
)


def new(
    devices: Devices,
    forward: Forward,
    backward_input: BackwardInput,
    backward_weight: BackwardWeight,
    microbatches: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_AMOUNT,
            help="Microbatches, of both directions together.",
            show_default="of --lengths",
        ),
    ] = None,
    lengths: Lengths = None,
    reference: Reference = None,
    quadratic: Quadratic = "0",
    tolerance: Tolerance = "0",
    order: Order = None,
    fused: Fused = None,
    held_after_f: HeldAfterF = "0",
    held_after_b: HeldAfterB = "0",
    layers: Layers = None,
    split: Split = SplitName.even,
    placement: PlacementName = "chain",
    chunks: Chunks = None,
    comm: Comm = 0,
    memory: Memory = None,
    static: Static = "0",
    backward: BackwardKind = BackwardName.either,
    overlap: Overlap = None,
    pair_time: PairTime = None,
    name: Annotated[str, typer.Option(help="For tables and pictures.")] = "",
    time_unit: Annotated[str, typer.Option(help="Of all times.")] = "",
    memory_unit: Annotated[str, typer.Option(help="Of all memory amounts.")] = "",
    output: Output = None,
) -> None:
    """Write a problem from costs of stages, or of layers.

    A cost is one number for every stage (with --layers: for every layer), or a list with one each.
    Lists that are longer than there are stages are of layers.
    """
    from pipesat.cli.costs import costs_of, numbers, pair_times, ratio
    from pipesat.core.errors import BadInput
    from pipesat.placement.documents import Setting
    from pipesat.placement.from_numbers import document_from_numbers, stages_of

    listed = _of_lengths(lengths, reference, quadratic, tolerance, order, microbatches)
    if listed and (placement == "bidirectional" or (memory or "").startswith("1f1b")):
        what = "--placement bidirectional" if placement == "bidirectional" else "a share of 1F1B's"
        raise BadInput(f"{what} needs microbatches that are alike", where="--lengths")
    setting = Setting(
        devices=devices,
        microbatches=microbatches or sum(entry["count"] for entry in listed),
        comm=comm,
        static=numbers("--static", static),
        backward=backward.value,
        overlap=None if overlap is None else ratio("--overlap", overlap),
        pair_times=pair_times("--pair-time", pair_time or []),
        name=name,
        time_unit=time_unit,
        memory_unit=memory_unit,
    )
    v = chunks_of(placement, chunks)
    texts = {
        "F": forward,
        "B": backward_input,
        "W": backward_weight,
        "BW": fused,
        "held_after_F": held_after_f,
        "held_after_B": held_after_b,
    }
    stages = stages_of(placement, devices, v, "--chunks")
    costs = costs_of(texts, layers, stages)
    document = document_from_numbers(
        costs, setting, placement, v, split.value, _memory(memory), "--memory"
    )
    if listed:
        document["microbatches"] = listed
    if order is not None:
        document["order"] = order.value
    write_problem(document, output, "problem new")


def examples(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write them.", show_default=True)
    ] = Path("examples"),
) -> None:
    """Write the shipped examples into a folder."""
    from importlib.resources import files

    from pipesat.files.atomic import prepare_folder, write_files

    found = (entry for entry in files("pipesat").joinpath("examples").iterdir() if entry.is_file())
    shipped = {entry.name: entry.read_bytes() for entry in found}
    prepare_folder(folder)
    write_files(folder, shipped)
    typer.echo(one_line(f"{len(shipped)} files, written to {folder}: begin with README.md"))


def _of_lengths(
    lengths: Path | None,
    reference: int | None,
    quadratic: str,
    tolerance: str,
    order: OrderName | None,
    microbatches: int | None,
) -> list[dict[str, Any]]:
    """Return the list of microbatches that lengths make; empty without any.

    Raises
    ------
    BadInput
        If options do not go together.
    """
    from pipesat.core.amounts import share
    from pipesat.core.errors import BadInput
    from pipesat.placement.lengths import microbatches_from_lengths, read_lengths

    if (lengths is None) == (microbatches is None):
        both = "" if lengths is None else ", not both"
        raise BadInput(f"expected either --microbatches or --lengths{both}", where="--microbatches")
    if lengths is None:
        if reference is not None or order is not None or (quadratic, tolerance) != ("0", "0"):
            text = "--reference, --quadratic, --tolerance and --order go with it"
            raise BadInput(text, where="--lengths")
        return []
    if reference is None:
        raise BadInput("expected the length that the costs are of", where="--reference")
    return microbatches_from_lengths(
        read_lengths(lengths),
        reference,
        share("--quadratic", quadratic),
        share("--tolerance", tolerance, 1000),
        str(lengths),
    )


def chunks_of(placement: Placement, chunks: int | None) -> int:
    """Stages per device of a loop.

    Raises
    ------
    BadInput
        If they are given for another placement.
    """
    from pipesat.core.errors import BadInput

    if chunks is not None and placement != "loop":
        raise BadInput("only a loop has a choice: --placement loop", where="--chunks", value=chunks)
    return chunks or CHUNKS


def _memory(text: str | None) -> CapacityChoice:
    from pipesat.cli.costs import numbers
    from pipesat.placement.from_numbers import share_of_1f1b

    if text is None:
        return None
    share = share_of_1f1b(text)
    return numbers("--memory", text) if share is None else share


def write_problem(document: dict[str, Any], output: Path | None, source: str) -> None:
    """Write a document that is a valid problem into a file, or on stdout.

    Raises
    ------
    BadInput
        If it is none, naming ``source``, or the file cannot be written.
    """
    from pipesat.files.atomic import write_file
    from pipesat.files.problem_file import parse_problem
    from pipesat.files.problem_text import problem_text

    problem = parse_problem(document, source)
    text = problem_text(document)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_file(output, text.encode())
    counts = f"{len(problem.devices)} devices, {len(problem.stages)} stages"
    microbatches = sum(route.microbatches for route in problem.routes)
    typer.echo(one_line(f"{counts}, {microbatches} microbatches, written to {output}"))
