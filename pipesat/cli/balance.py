"""``pipesat balance``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesat.cli.asked import read_problem
from pipesat.cli.commands import command
from pipesat.cli.exits import CHECK_FAILED, note

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.workflows.order_rows import MicrobatchOrders


@command(
    "balance",
    example="pipesat balance problem.json --schedule 1f1b -o balanced\n"
    "  pipesat balance p.json --lengths l.json --reference 4096 --replicas 8 -o out",
    without=("deterministic",),
    metavars={"lengths": "FILE", "quadratic": "Q"},
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
    from pipesat.files.microbatch_list import MOST_CLASSES
    from pipesat.replicas.answer import Assignment

    found: MicrobatchOrders | Assignment = asked.answer(
        lambda answer, folder, _: answer.save(folder),
        problem=read_problem(asked["problem"], MOST_CLASSES * (asked["replicas"] or 1)),
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
