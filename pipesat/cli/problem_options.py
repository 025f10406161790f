"""Arguments and options of ``pipesat problem new``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pipesat.cli.arguments import MOST_AMOUNT, MOST_CHUNKS, SplitName, writable
from pipesat.placement.geometry import Placement

if TYPE_CHECKING:
    pass

_LIST = "N[,N...]"


class BackwardName(StrEnum):
    """Which backwards may run."""

    always_split = "split"
    always_fused = "fused"
    either = "either"


class OrderName(StrEnum):
    """Which orders of microbatches that differ are allowed."""

    given = "given"
    same = "same"
    free = "free"


Devices: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, max=4096, help="Pipeline ranks.")
]
Forward: TypeAlias = Annotated[str, typer.Option("--F", metavar=_LIST, help="Forward time.")]
BackwardInput: TypeAlias = Annotated[
    str, typer.Option("--B", metavar=_LIST, help="Time of the backward for the input gradient.")
]
BackwardWeight: TypeAlias = Annotated[
    str, typer.Option("--W", metavar=_LIST, help="Time of the backward for the weight gradient.")
]
Fused: TypeAlias = Annotated[
    str | None,
    typer.Option("--BW", metavar=_LIST, help="Time of both fused.", show_default="B + W"),
]
HeldAfterF: TypeAlias = Annotated[
    str, typer.Option("--held-after-F", metavar=_LIST, help="Memory from F to the end of B.")
]
HeldAfterB: TypeAlias = Annotated[
    str, typer.Option("--held-after-B", metavar=_LIST, help="Memory from B to the end of W.")
]
Layers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, max=1_000_000, help="Costs are those of N layers.", show_default="no"
    ),
]
Split: TypeAlias = Annotated[
    SplitName,
    typer.Option("--cut", help="Layers per stage: equally many, or so that times balance."),
]
PlacementName: TypeAlias = Annotated[Placement, typer.Option(help="Where the stages lie.")]
Chunks: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, max=MOST_CHUNKS, help="Stages per device of a loop.", show_default="2"
    ),
]
Comm: TypeAlias = Annotated[
    int,
    typer.Option("--link-delay", metavar="N", min=0, max=MOST_AMOUNT, help="Delay of every link."),
]
Memory: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar=_LIST,
        help="Capacity, one for all devices or one each; 1f1b*0.75: that share of 1F1B's peak.",
        show_default="unlimited",
    ),
]
Static: TypeAlias = Annotated[
    str, typer.Option(metavar=_LIST, help="Memory that is always taken, as --memory.")
]
BackwardKind: TypeAlias = Annotated[BackwardName, typer.Option(help="Which backwards may run.")]
Overlap: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NUM/DEN", help="Allow pairs of F and BW.", show_default="none"),
]
PairTime: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[KIND+KIND=]TIME",
        help="Time of a pair of two kinds on one device, F+BW unless named, or NUM/DEN of what "
        "they take alone; repeatable.",
        show_default="none",
    ),
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="File to write.",
        show_default="stdout",
        callback=writable,
    ),
]
Lengths: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Microbatches that differ: a length each, as a JSON list or one per line.",
        show_default="no",
    ),
]
Reference: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MOST_AMOUNT, help="Length that the costs are of."),
]
Quadratic: TypeAlias = Annotated[
    str,
    typer.Option(metavar="Q", help="Share of its time that grows with the square of the length."),
]
Tolerance: TypeAlias = Annotated[
    str, typer.Option(metavar="T", help="Lengths whose factors differ by less become one class.")
]
Order: TypeAlias = Annotated[
    OrderName | None,
    typer.Option(
        help="Order of microbatches that differ: as given, the same on every stage, or free.",
        show_default="free",
    ),
]
