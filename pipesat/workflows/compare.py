"""The hand-written schedules of a problem beside the answer to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipesat.core.claims import require_best
from pipesat.workflows.best_known import with_hand_written
from pipesat.workflows.hand_written import hand_written
from pipesat.workflows.rows import (
    SOLVER_ROW,
    ScheduleRow,
    against_best,
    solver_row,
    with_ratios,
)

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Objective


def compare(
    problem: Problem, result: Result | None = None, *, objective: Objective = "makespan"
) -> Iterator[ScheduleRow]:
    """Yield a row per baseline, and one for a solve's result if given.

    The result says what the ratios are of; without one, they are of ``objective``. A baseline that
    is better than the result is the answer: the solver's row has it too.
    """
    if result is not None:
        yield from comparison_of(result).rows
    else:
        yield from against_best([row for row, _ in hand_written(problem, objective)], objective)


@dataclass(frozen=True)
class Comparison:
    """The rows of one problem, and the answer to it; ``placement`` if there are several.

    Raises
    ------
    Contradiction
        If a valid row is better than the answer, or below its bound.
    """

    placement: str | None
    problem: Problem
    result: Result
    rows: tuple[ScheduleRow, ...]

    def __post_init__(self) -> None:
        objective = self.result.objective
        valid = [(row.name, row.value(objective)) for row in self.rows if row.valid]
        require_best(SOLVER_ROW, self.result.value, valid)


def comparison_of(result: Result, placement: str | None = None) -> Comparison:
    """Make every baseline of a result's problem; the best of all is the answer.

    The rows' ratios to the best are those within the comparison.
    """
    problem, objective = result.problem, result.objective
    made = list(hand_written(problem, objective))
    result = with_hand_written(result, [s for row, s in made if s is not None and row.valid])
    rows = with_ratios([*(row for row, _ in made), solver_row(result)], result)
    return Comparison(
        placement, problem, result, tuple(replace(row, placement=placement) for row in rows)
    )


def compare_placements(
    problem: Problem, solve_one: Callable[[str, Problem], Result], layers: Sequence[int] = ()
) -> Iterator[Comparison]:
    """Yield the comparison of a chain, then of its layers in each other placement.

    ``solve_one`` is handed a placement's name and problem; ``layers`` states of how many equal
    layers the stages are made. The rows' ratios to the best are within their placement:
    :func:`pipesat.workflows.rows.against_best` relates all of them.

    Raises
    ------
    NotApplicable
        Unless every device holds exactly one stage of one route.
    BadInput
        If nobody states that the stages divide, or they do not.
    """
    from pipesat.placement.elsewhere import same_layers_elsewhere

    for name, placed in same_layers_elsewhere(problem, layers).items():
        yield comparison_of(solve_one(name, placed), name)
