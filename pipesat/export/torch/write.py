"""Schedule -> torch's ``compute_only`` CSV, linted and read back before anyone sees it."""

from __future__ import annotations

from pipesat.core.errors import Fault
from pipesat.core.ops import Item, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.export.torch.lint import lint
from pipesat.export.torch.read import rows_of_csv
from pipesat.export.torch.tokens import LETTER_OF, Action, Cell, cell_text


def torch_csv(problem: Problem, schedule: Schedule) -> str:
    """Return the CSV of a schedule that :func:`pipesat.export.torch.adapt.adapt` has made fit.

    One row per rank, one cell per action, no header, no blank line; torch adds communication.

    Raises
    ------
    Fault
        If the result breaks a rule of torch's, or does not read back as the schedule's order.
    """
    rows = cells_of(problem, schedule.order)
    route = problem.routes[0]
    if complaints := lint(rows, len(route.stages), route.microbatches):
        raise Fault(f"the exported order breaks a rule of torch's: {complaints[0]}")
    text = "".join(",".join(map(cell_text, row)) + "\n" for row in rows)
    if rows_of_csv(text, "export") != rows:
        raise Fault("the exported order does not read back as it was")
    return text


def cells_of(problem: Problem, order: Order) -> list[list[Cell]]:
    """Return an order in torch's words: its stage k is the k-th of the route."""
    position = {stage: i for i, stage in enumerate(problem.routes[0].stages)}

    def cell(item: Item) -> Cell:
        return tuple(
            Action(position[op.stage], LETTER_OF[op.kind], op.microbatch) for op in members(item)
        )

    return [[cell(item) for item in row] for row in order]
