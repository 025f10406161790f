"""``pipesat frontier``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.command import command

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.frontier.answers import Frontiers, LeastMemory

_LEAST = (
    click.Option(
        ["--within"],
        metavar="SHARE",
        help="No curve: the least capacity of every device that costs at most so much, as 5%.",
    ),
    click.Option(
        ["--capacity-of"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="With --within: near the best with the capacities of this problem file, maybe the "
        "same.  [default: unlimited]",
    ),
)


@command(
    "frontier",
    example="pipesat frontier problem.json --points 8 -o curve",
    names={
        "count": "--points",
        "target": "--for",
        "placements": "--placement",
        "layers": "--layers-per-stage",
    },
    metavars={"caps": "CAP[,CAP...]"},
    extra=_LEAST,
    output="DIR",
)
def frontier(asked: Asked) -> int:
    """Show how step time depends on memory, with bounds.

    The file's own capacities play no part: every device gets the same, from the smallest with which
    a schedule exists to where more buys nothing. Hand-written schedules stand beside the curve, as
    if memory were unlimited.

    With --within, one capacity in place of the curve: the smallest that is enough, and there the
    smallest sum of the devices' peaks, both with what is proven.

    Writes frontier.json, .csv, .png, .svg and a problem and a schedule per capacity into DIR.
    Ctrl-C keeps the curve so far.
    """
    if asked["within"] is not None:
        return _least(asked)
    asked.refuse(["capacity_of"], "it says what --within is near")
    found: Frontiers = asked.answer(lambda found, folder, _: found.save(folder))
    asked.show(found, lambda: found.document(asked.output))
    return asked.end(contradictions=found.contradictions)


def _least(asked: Asked) -> int:
    """Answer with the least memory that costs at most so much."""
    from pipesat.core.amounts import share
    from pipesat.core.attached import attached

    curve = ("caps", "count", "placements", "layers", "by_mode")
    asked.refuse(curve, "--within asks for one capacity, not for a curve")
    least = asked.other(attached("min_memory"))
    found: LeastMemory = least.answer(
        lambda found, folder, _: found.save(folder),
        within=share("--within", asked["within"], 10_000),
    )
    least.show(found, lambda: found.document(asked.output))
    return least.end(contradictions=found.found.curve.contradictions)
