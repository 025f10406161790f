"""``pipesat balance``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipesat.cli.asked import read_problem
from pipesat.cli.commands import command
from pipesat.cli.exits import CHECK_FAILED, note

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.workflows.order_rows import MicrobatchOrders

_LENGTHS = click.Option(
    ["--lengths"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A length per microbatch, in place of the problem's: a JSON list, or one a line.",
)
_QUADRATIC = click.Option(
    ["--quadratic"],
    metavar="Q",
    default="0",
    help="Share of its time that grows with the square of the length.  [default: 0]",
)


@command(
    "balance",
    example="pipesat balance problem.json --schedule 1f1b -o balanced\n"
    "  pipesat balance p.json --lengths l.json --reference 4096 --replicas 8 -o out",
    without=("lengths", "quadratic", "deterministic"),
    extra=(_LENGTHS, _QUADRATIC),
    output="DIR",
)
def balance(asked: Asked) -> int:
    """Find the best order for microbatches whose lengths vary, or the best deal to replicas.

    Shows the best order beside the given one, descending, ascending and small at both ends, under
    each hand-written schedule, with a bound that no schedule goes below. The schedules stay as they
    are, and the problem's own order is ignored.

    With --replicas: which sequence goes to which replica and microbatch, in which order, beside
    what frameworks do, with a bound that no assignment goes below.

    Writes assignment.json, and of one replica problem.json, the problem in this order, into DIR.
    solve takes it and may change the schedule, too.
    """
    from pipesat.core.amounts import share
    from pipesat.files.microbatch_list import MOST_CLASSES
    from pipesat.replicas.answer import Assignment

    found: MicrobatchOrders | Assignment = asked.answer(
        lambda answer, folder, _: answer.save(folder),
        problem=read_problem(asked["problem"], MOST_CLASSES * (asked["replicas"] or 1)),
        quadratic=share("--quadratic", asked["quadratic"]),
    )
    fits = found.value if isinstance(found, Assignment) else found.best
    asked.output = None if fits is None else asked.output  # else nothing was written
    asked.show(found, found.document)
    if fits is None:
        what = "assignment was found that fits into memory and tokens"
        if not isinstance(found, Assignment):
            what = "schedule fits into memory in any order tried"
        note(f"pipesat: no {what}")
    return asked.interrupts.exit_code or (CHECK_FAILED if fits is None else 0)
