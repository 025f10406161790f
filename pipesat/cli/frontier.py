"""``pipesat frontier``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesat.cli.command import command

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.frontier.answers import Frontiers


@command(
    "frontier",
    example="pipesat frontier problem.json --points 8 -o curve",
    names={"count": "--points", "target": "--for"},
    metavars={"caps": "CAP[,CAP...]"},
    output="DIR",
)
def frontier(asked: Asked) -> int:
    """Show how step time depends on memory, with bounds.

    The file's own capacities play no part: every device gets the same, from the smallest with which
    a schedule exists to where more buys nothing. Hand-written schedules stand beside the curve, as
    if memory were unlimited.

    Writes frontier.json, .csv, .png, .svg and a problem and a schedule per capacity into DIR.
    Ctrl-C keeps the curve so far.
    """
    found: Frontiers = asked.answer(lambda found, folder, _: found.save(folder))
    asked.show(found, lambda: found.document(asked.output))
    return asked.end(contradictions=found.contradictions)
