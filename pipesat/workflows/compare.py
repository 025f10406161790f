"""The hand-written schedules of a problem beside the answer to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.core.schedule import Objective
from pipesat.core.settings import Count, Seconds, Seed, Target, Workers
from pipesat.core.timing import retime
from pipesat.workflows.best_known import with_given, with_hand_written
from pipesat.workflows.comparison import Comparison, Comparisons
from pipesat.workflows.hand_written import (
    against_best,
    hand_written_for,
    row_of,
    solver_row,
    with_ratios,
)
from pipesat.workflows.memory import stated_layers
from pipesat.workflows.schedules import valid_schedule
from pipesat.workflows.solve import solve

if TYPE_CHECKING:
    from pathlib import Path

    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.core.solving import Listener
    from pipesat.workflows.hand_written import ScheduleRow


@public
def compare(
    problem: Problem,
    result: Result | None = None,
    *,
    schedules: Mapping[str, Schedule | Result | str | Path] | None = None,
    search: bool = True,
    placements: bool = False,
    layers: Count | Sequence[Count] | None = None,
    target: Target | None = None,
    objective: Objective = "makespan",
    time_limit: Seconds = 60.0,
    workers: Workers | None = None,
    seed: Seed = 0,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
    solve_one: Callable[[str | None, Problem, Sequence[Schedule]], Result] | None = None,
) -> Comparisons:
    """Compare every applicable baseline with the answer of a search: a table, best first.

    Parameters
    ----------
    problem
        The problem.
    result
        The answer to compare with; ``None``: the problem is solved. A baseline that is better is
        the answer: the solver's row has it too.
    schedules
        Yours, by names of your choice: each has a row, for its order timed as all others are. The
        search starts from them too, and one that is better than what it found is the answer.
    search
        ``False``: the hand-written schedules alone, none is compared with a search.
    placements
        Compare with the same layers in a loop, a V and bidirectional. Each is solved. The problem
        has one stage per device.
    layers
        With ``placements``: you state that every stage is so many equal layers, or one number per
        stage. A loop and a V cut between them; ``None``: unknown.
    target
        Compare only what this runtime can run; ``None``: any. See :func:`pipesat.solve`.
    objective
        ``makespan`` or ``span``: of it are the ratios, unless a result says.
    time_limit
        Seconds for each search.
    solve_one
        Solves one placement's problem (its name is ``None`` without ``placements``) from your
        schedules, in place of a plain solve with these options.

    Raises
    ------
    NotApplicable
        If other placements are asked for, and devices do not hold exactly one stage of one route.
    NotValid
        If the checker refuses one of ``schedules``.
    BadInput
        If nobody states that the stages divide, or they do not; if ``schedules`` of the problem as
        it is come with other placements.
    """
    stated = stated_layers(layers, placements)
    if placements and target is not None:
        text = "expected `placements` or a target: not every placement runs there"
        raise BadInput(text, where="target", value=target)
    given = _given(problem, schedules or {})

    def solved(placement: str | None, placed: Problem) -> Result:
        if solve_one is not None:
            return solve_one(placement, placed, [*given.values()])
        return solve(
            placed,
            objective=objective,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            target=target,
            schedules=given.values(),
            listener=listener,
            stop=stop,
        )

    if placements and given:
        text = "with other placements, there are no schedules to compare: they are of this one"
        raise BadInput(text, where="schedules", value=", ".join(given))
    if placements:
        several = tuple(compare_placements(problem, solved, stated))
        rows = against_best((row for one in several for row in one.rows), objective)
        return Comparisons(problem, objective, tuple(rows), several, tuple(stated))
    if result is None and not search:
        made = [row for row, _ in hand_written_for(problem, target, objective)]
        rows = against_best([*made, *_own(made, given, problem)], objective)
        return Comparisons(problem, objective, tuple(rows))
    one = comparison_of(solved(None, problem) if result is None else result, given=given)
    return Comparisons(problem, one.result.objective, one.rows, (one,))


def comparison_of(
    result: Result, placement: str | None = None, given: Mapping[str, Schedule] | None = None
) -> Comparison:
    """Make every baseline of a result's problem; the best of all is the answer.

    ``given`` has valid schedules of a user, by name. The rows' ratios to the best are those within
    the comparison.
    """
    problem, objective = result.problem, result.objective
    made = hand_written_for(problem, result.target, objective)
    result = with_hand_written(result, [s for row, s in made if s is not None and row.valid])
    given = given or {}
    result = with_given(result, [retime(problem, s, objective, name) for name, s in given.items()])
    rows = [row for row, _ in made]
    rows = with_ratios([*rows, *_own(rows, given, problem), solver_row(result)], result)
    placed = tuple(replace(row, placement=placement) for row in rows)
    return Comparison(placement, problem, result, placed, tuple(given))


def _own(
    rows: Sequence[ScheduleRow], given: Mapping[str, Schedule], problem: Problem
) -> list[ScheduleRow]:
    """Rows of a user's schedules, but of one by name that has its row already."""
    there = {row.name for row in rows}
    return [row_of(name, problem, given[name]) for name in given if name not in there]


def _given(
    problem: Problem, schedules: Mapping[str, Schedule | Result | str | Path]
) -> dict[str, Schedule]:
    """Check a user's schedules, and name them as the source of what comes of them."""
    return {
        name: replace(valid_schedule(problem, schedule), source=name)
        for name, schedule in schedules.items()
    }


def compare_placements(
    problem: Problem, solve_one: Callable[[str | None, Problem], Result], layers: Sequence[int] = ()
) -> Iterator[Comparison]:
    """Yield the comparison of a chain, then of its layers in each other placement.

    ``solve_one`` is handed a placement's name and problem; ``layers`` states of how many equal
    layers the stages are made. The rows' ratios to the best are within their placement:
    :func:`pipesat.workflows.hand_written.against_best` relates all of them.
    """
    from pipesat.placement.other_placements import same_layers_elsewhere

    for name, placed in same_layers_elsewhere(problem, layers).items():
        yield comparison_of(solve_one(name, placed), name)
