"""The three things users do, joined from solver and heuristics: solve, compare, baseline.

Besides the command line, only this module knows both sides.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from pipesat.best_known import with_hand_written
from pipesat.core.checker import Violation, check
from pipesat.core.claims import ratio, ratio_to_least, require_best
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.memory import peak_memory
from pipesat.core.metrics import bubbles
from pipesat.core.timing import time_order

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Bound, Improvement, Result
    from pipesat.core.schedule import Objective, Schedule
    from pipesat.heuristics.registry import Published

SOLVER_ROW = "solver"
_QUICK_OPS = 5_000  # one policy of list scheduling takes 0.2 s at most


def solve(
    problem: Problem,
    *,
    objective: Objective = "makespan",
    time_limit: float = 60.0,
    workers: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    target: str | None = None,
    schedules: Iterable[Schedule] = (),
    known_bound: Bound | None = None,
    listener: Callable[[Improvement], None] | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Return the best verified schedule within ``time_limit`` seconds, with its lower bound.

    Starts from every hand-written schedule and every list-scheduling policy that can be made in
    time, so the answer is never worse than the best of those that fit. On problems of more than
    100,000 ops or so, one schedule alone takes seconds. See :func:`pipesat.solver.solve`.

    Parameters
    ----------
    deterministic
        One result for one seed, whatever the load: one thread, limits in deterministic time.
    target
        ``"torch"`` makes what torch cannot do part of the problem (its first stage's backward is
        whole), so that value and bound are those of orders that run there.
    schedules
        Schedules to start from besides the hand-written ones, for example those of the same
        problem with less memory. What breaks a rule of this problem is passed over.
    known_bound
        A bound of the objective that is proven already, for example that of the same problem with
        more memory.

    Raises
    ------
    NotApplicable
        If the target cannot run such a pipeline.
    BadInput
        If there is no such target.
    """
    from pipesat.heuristics import BASELINES  # slow to import, both: before the clock starts
    from pipesat.solver import solve as search

    expires = time.monotonic() + time_limit
    stop = stop or threading.Event()
    found = threading.Event()

    def give_up() -> bool:
        return stop.is_set() or (not deterministic and time.monotonic() > expires)

    def heard(improvement: Improvement) -> None:
        if improvement.value is not None:
            found.set()
        if listener is not None:
            listener(improvement)

    searched = problem_for(problem, target)
    starts = _Starts(searched, BASELINES.values(), give_up, found.is_set)
    result = search(
        searched,
        objective=objective,
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        deterministic=deterministic,
        warm_starts=starts,
        schedules=schedules,
        known_bound=known_bound,
        listener=heard,
        stop=stop,
    )
    cut = not (starts.all_made or result.standing.proven or result.status == "infeasible")
    note = "the search ended before all hand-written schedules were made" if cut else ""
    explanation = "; ".join(filter(None, (result.explanation, note)))
    return replace(
        result, problem=problem, target=target, baselines_left_out=cut, explanation=explanation
    )


def problem_for(problem: Problem, target: str | None) -> Problem:
    """Return the problem that is to be solved for a runtime: every schedule of it runs there.

    Raises
    ------
    NotApplicable
        If the target cannot run such a pipeline.
    BadInput
        If there is no such target.
    """
    from pipesat.export.torch.restrict import restricted_to_torch

    if target not in (None, "torch"):
        raise BadInput("expected torch or None", where="target", value=target)
    return problem if target is None else restricted_to_torch(problem)


def baseline(name: str, problem: Problem) -> Schedule:
    """Return one hand-written schedule, timed as early as possible; it may exceed memory.

    Raises
    ------
    BadInput
        If there is no baseline of that name.
    NotApplicable
        If it does not fit the problem's placement.
    """
    from pipesat.heuristics import BASELINES

    if name not in BASELINES:
        raise BadInput(f"expected one of {', '.join(BASELINES)}", where="baseline", value=name)
    return BASELINES[name](problem)


@dataclass(frozen=True)
class Row:
    """One line of a comparison; figures are ``None`` where the schedule does not apply.

    ``makespan`` is that of the earliest timing of the order, ``span`` that of its timing by minimum
    span; the bubbles are of these two. ``valid`` is False with the reason in ``why_not``. The
    ratios are of the objective: to the best valid row, and to the lower bound of the row's problem.
    """

    name: str
    makespan: int | None = None
    span: int | None = None
    bubble: dict[str, float | None] | None = None
    peak_memory: list[int] | None = None
    valid: bool = False
    why_not: str | None = None
    ratio_to_best: float | None = None
    ratio_to_bound: float | None = None
    placement: str | None = None

    def value(self, objective: Objective) -> int | None:
        """Makespan or span."""
        return self.makespan if objective == "makespan" else self.span


def compare(
    problem: Problem, result: Result | None = None, *, objective: Objective = "makespan"
) -> Iterator[Row]:
    """Yield a row per baseline, and one for a solve's result if given.

    The result says what the ratios are of; without one, they are of ``objective``. A baseline that
    is better than the result is the answer: the solver's row has it too.
    """
    if result is not None:
        yield from comparison_of(result).rows
    else:
        yield from against_best([row for row, _ in hand_written(problem, objective)], objective)


def hand_written(problem: Problem, objective: Objective) -> Iterator[tuple[Row, Schedule | None]]:
    """Yield a row per baseline, and its schedule timed for the objective, valid or not."""
    from pipesat.heuristics import BASELINES

    for name, function in BASELINES.items():
        try:
            schedule = function(problem)
        except NotApplicable as error:
            yield Row(name, why_not=str(error)), None
        else:
            yield (
                row_of(name, problem, schedule),
                time_order(problem, schedule.order, objective, name),
            )


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
    rows: tuple[Row, ...]

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


def solver_row(result: Result) -> Row:
    """Return the answer's own row."""
    if result.schedule is None:
        return Row(SOLVER_ROW, why_not=result.explanation or "no schedule found in time")
    return row_of(SOLVER_ROW, result.problem, result.schedule)


def with_ratios(rows: Iterable[Row], result: Result) -> list[Row]:
    """Return the rows with their ratios to the result's bound and to the best valid one."""
    bound = None if result.lower_bound is None else result.lower_bound.value

    def to_bound(row: Row) -> float | None:
        value = row.value(result.objective)
        return ratio_to_least(value, bound, row.name) if row.valid else ratio(value, bound)

    rows = [replace(row, ratio_to_bound=to_bound(row)) for row in rows]
    return against_best(rows, result.objective)


def compare_placements(
    problem: Problem, solve_one: Callable[[str, Problem], Result], layers: Sequence[int] = ()
) -> Iterator[Comparison]:
    """Yield the comparison of a chain, then of its layers in each other placement.

    ``solve_one`` is handed a placement's name and problem; ``layers`` states of how many equal
    layers the stages are made. The rows' ratios to the best are within their placement:
    :func:`against_best` relates all of them.

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


def against_best(rows: Iterable[Row], objective: Objective) -> list[Row]:
    """Return the rows with their ratios to the best valid one of them."""
    rows = list(rows)
    values = [row.value(objective) for row in rows if row.valid]
    best = min((value for value in values if value is not None), default=None)
    return [replace(row, ratio_to_best=ratio(row.value(objective), best)) for row in rows]


def row_of(name: str, problem: Problem, schedule: Schedule) -> Row:
    """Measure one schedule's order, timed for each objective in turn; valid if both timings are."""
    earliest = time_order(problem, schedule.order)
    by_span = time_order(problem, schedule.order, "span")
    violations = check(problem, earliest)
    if not violations and by_span.devices != earliest.devices:
        violations = check(problem, by_span)
    return Row(
        name,
        makespan=earliest.makespan,
        span=by_span.span,
        bubble={"makespan": bubbles(problem, earliest)[0], "span": bubbles(problem, by_span)[1]},
        peak_memory=peak_memory(problem, earliest),
        valid=not violations,
        why_not=_summary(violations) if violations else None,
    )


def _summary(violations: list[Violation]) -> str:
    first = violations[0].message
    return first if len(violations) == 1 else f"{first} (and {len(violations) - 1} more)"


@dataclass
class _Starts:
    """The schedules to start from, made one by one: quick ones, slow ones, and the portfolio's.

    ``give_up`` is asked all along; ``found`` says whether one of them was valid. If none of the
    quick ones is, the first policy's schedule, which is, comes before the slow ones; where it takes
    a fraction of a second, even if told to give up. ``all_made`` says afterwards whether whoever
    took them took all, and none was given up.
    """

    problem: Problem
    entries: Iterable[Published]
    give_up: Callable[[], bool]
    found: Callable[[], bool]
    all_made: bool = False

    def __iter__(self) -> Iterator[Schedule]:
        from pipesat.heuristics.list_scheduling import NAME as LIST_SCHEDULING
        from pipesat.heuristics.list_scheduling import list_schedules, policies
        from pipesat.heuristics.registry import never

        problem = self.problem
        named = [entry for entry in self.entries if entry.name != LIST_SCHEDULING]
        yield from self._made(entry for entry in named if entry.slow is None)
        chosen = policies(problem)
        if not self.found():
            give_up = never if problem.op_count <= _QUICK_OPS else self.give_up
            yield from list_schedules(problem, give_up, islice(chosen, 1))
        yield from self._made(entry for entry in named if entry.slow is not None)
        yield from list_schedules(problem, self.give_up, chosen)
        self.all_made = not self.give_up()

    def _made(self, entries: Iterable[Published]) -> Iterator[Schedule]:
        """Yield the schedules that apply, until told to give up."""
        for entry in entries:
            if self.give_up():
                return
            with contextlib.suppress(NotApplicable):
                yield entry(self.problem, self.give_up)
