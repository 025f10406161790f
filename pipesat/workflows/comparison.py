"""What a comparison says: one table of schedules, the answer, what does not apply and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipesat.core.amounts import time_text
from pipesat.core.claims import at_most, excess, percent, plural, require_best, times
from pipesat.core.showing import Column, Displayed, Facts, Line, Table, number
from pipesat.core.summary import fullest, statement_of, units_of
from pipesat.workflows.hand_written import SOLVER_ROW, ScheduleRow

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Objective

_BASIS = (
    "the same layers, devices, memory per device, link delays and microbatches; {stated}. A loop "
    "of 2 and a V cut each stage in two between layers (of an odd number, one part has a layer "
    "more; if an amount does not divide, the first part takes the rest). Static memory goes with "
    "its layers. The hop from the last device to the first takes the slowest link's delay. "
    "bidirectional has two replicas of every layer, with the static memory of both, and half of "
    "the microbatches in each direction."
)


@dataclass(frozen=True, repr=False, slots=True)
class Comparisons(Displayed):
    """A table of schedules: iterate over its rows, ``print`` it, or call ``to_frame()``.

    ``comparisons`` has each placement's rows with the answer to its problem; without a search there
    are none. ``layers`` is what was stated of its stages.
    """

    problem: Problem
    objective: Objective
    rows: tuple[ScheduleRow, ...]
    comparisons: tuple[Comparison, ...] = ()
    layers: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[ScheduleRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> ScheduleRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name!r}, expected one of {', '.join(row.name for row in self.rows)}")

    @property
    def best(self) -> ScheduleRow | None:
        """The best valid row; the solver's where it is as good as a hand-written one."""
        return next((row for row in self.sorted() if row.valid), None)

    @property
    def result(self) -> Result | None:
        """The answer to the problem as it is, ``None`` without a search."""
        return self.comparisons[0].result if self.comparisons else None

    def sorted(self) -> list[ScheduleRow]:
        """Return the rows, the best valid one first."""

        def rank(row: ScheduleRow) -> tuple[bool, float, bool]:
            value = row.value(self.objective)
            return not row.valid, math.inf if value is None else value, row.name != SOLVER_ROW

        return sorted(self.rows, key=rank)

    def facts(self) -> Facts:
        """Return the answer of the search, or the best row, and how many there are."""
        return [*_answer(self)]

    def details(self) -> Facts:
        """Return why schedules have no line in the table."""
        return [*_left_out(self)]

    def tables(self) -> Iterator[Table]:
        """Yield the table of all schedules that apply."""
        yield _table(self)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per schedule, the best valid one first."""
        return [_record(row) for row in self.sorted()]


def _record(row: ScheduleRow) -> dict[str, Any]:
    bubble = row.bubble or {"makespan": None, "span": None}
    return {
        "name": row.name,
        "placement": row.placement,
        "makespan": row.makespan,
        "span": row.span,
        "bubble_of_makespan": bubble["makespan"],
        "bubble_of_span": bubble["span"],
        "peak_memory": None if row.peak_memory is None else max(row.peak_memory),
        "to_best": row.ratio_to_best,
        "to_bound": row.ratio_to_bound,
        "valid": row.valid,
        "why_not": row.why_not,
    }


@dataclass(frozen=True)
class Comparison:
    """The rows of one problem, and the answer to it; ``placement`` if there are several.

    ``given`` names the rows of a user's own schedules.

    Raises
    ------
    Contradiction
        If a valid row is better than the answer, or below its bound.
    """

    placement: str | None
    problem: Problem
    result: Result
    rows: tuple[ScheduleRow, ...]
    given: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        objective = self.result.objective
        valid = [(row.name, row.value(objective)) for row in self.rows if row.valid]
        require_best(SOLVER_ROW, self.result.value, valid)


def _table(compared: Comparisons) -> Table:
    """Return the rows of all comparisons, the best valid one first, then those over capacity."""
    problem, objective = compared.problem, compared.objective
    several, capped = len(compared.comparisons) > 1, _capped(problem)
    problems = _problems(compared)

    def cells(row: ScheduleRow) -> list[str]:
        bubble = row.bubble or {"makespan": None, "span": None}
        peak, share = _peak(problems[row.placement], row)
        return [
            row.name,
            *([row.placement or ""] if several else []),
            number(row.makespan),
            number(row.span),
            percent(bubble["makespan"]),
            percent(bubble["span"]),
            number(peak),
            *([percent(share, 1)] if capped else []),
            times(row.ratio_to_best),
            times(row.ratio_to_bound),
        ]

    rows = compared.sorted()
    lines: list[Line] = [cells(row) for row in rows if row.valid]
    if over := [row for row in rows if _over(problems[row.placement], row)]:
        lines += ["over capacity:", *map(cells, over)]
    heading = "; ".join([*units_of(problem), f"order and ratios by {objective}"])
    title = f"{problem.name or 'problem'}: {heading}"
    return Table(_columns(objective, several=several, capped=capped), lines, title)


def _capped(problem: Problem) -> bool:
    return any(device.memory is not None for device in problem.devices)


def _problems(compared: Comparisons) -> dict[str | None, Problem]:
    own = {None: compared.problem}
    return own | {c.placement: c.problem for c in compared.comparisons}


def _columns(objective: Objective, *, several: bool, capped: bool) -> list[Column]:
    """The table's columns; a narrow terminal loses the other objective's figures first."""
    spare = {"makespan": 0, "span": 3} if objective == "makespan" else {"makespan": 3, "span": 0}
    return [
        Column("schedule", number=False),
        *([Column("placement", number=False)] if several else []),
        Column("makespan", spare=spare["makespan"] and 2),
        Column("span", spare=spare["span"] and 2),
        Column("bubble\nof\nmakespan", spare=spare["makespan"]),
        Column("bubble\nof\nspan", spare=spare["span"]),
        Column("peak\nmemory", spare=1),
        *([Column("of\ncap")] if capped else []),
        Column("to\nbest"),
        Column("to\nbound"),
    ]


def _peak(problem: Problem, row: ScheduleRow) -> tuple[int | None, float | None]:
    """Peak memory of the fullest device, and its share of the capacity."""
    if not row.peak_memory:
        return None, None
    device = fullest(problem, row.peak_memory)
    peak, capacity = row.peak_memory[device], problem.devices[device].memory
    return peak, None if capacity is None else peak / capacity if capacity else float(peak > 0)


def _over(problem: Problem, row: ScheduleRow) -> bool:
    pairs = zip(problem.devices, row.peak_memory or (), strict=False)
    return any(device.memory is not None and peak > device.memory for device, peak in pairs)


def _answer(compared: Comparisons) -> Iterator[tuple[str, str]]:
    """Yield what the search found and proved, placement by placement, and about your schedules."""
    best = compared.best
    if not compared.comparisons:
        yield "Take", "nothing: none fits" if best is None else _taken(compared, best)
    for comparison in compared.comparisons:
        if comparison.placement is None:
            yield from comparison.result.answer()
        else:
            result = comparison.result
            yield comparison.placement, f"{result.taken()}, {result.standing.verdict}"
        for name, text in _given(comparison):
            yield "Yours", f"{name}: {text}"
    shown = sum(row.valid for row in compared.rows)
    left = len(compared.rows) - shown
    yield "Left out", f"{left} {plural(left, 'schedule')} that do not fit or apply" if left else ""


def _taken(compared: Comparisons, best: ScheduleRow) -> str:
    value = best.value(compared.objective) or 0
    time = time_text(value, compared.problem.time_unit)
    return f"{best.name}: {time} a step ({compared.objective}), the best hand-written schedule"


def _given(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """How far a user's own schedules are above the best, and above the optimum at most."""
    result = comparison.result
    for row in comparison.rows:
        if row.name not in comparison.given:
            continue
        value, bound = row.value(result.objective), result.bound
        above = excess(value, result.value, row.name)
        said = (
            "as good as the best found" if above == 0 else f"{at_most(above)} above the best found"
        )
        if result.standing.proven:
            said = "optimal" if above == 0 else f"{at_most(above)} above the optimum"
        elif bound is not None and bound.value > 0:
            said += f", at most {at_most(excess(value, bound.value, row.name))} above the optimum"
        yield row.name, said


def _left_out(compared: Comparisons) -> Iterator[tuple[str, str]]:
    """Yield the reasons of baselines without a line in the table, and on what placements agree."""
    problems, rows = _problems(compared), compared.rows
    reasons: dict[str, str] = {}
    shown = {row.name for row in rows if row.valid or _over(problems[row.placement], row)}
    for row in rows:
        if row.name not in shown and row.name != SOLVER_ROW and _wanted(row):
            reasons[row.name] = row.why_not or ""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    for reason, names in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        yield "does not apply", f"{', '.join(names)}: {reason}"
    if len(compared.comparisons) > 1:
        yield "basis", _BASIS.format(stated=statement_of(compared.layers))


def _wanted(row: ScheduleRow) -> bool:
    """Whether a row's reason is the one to tell: that of the placement the schedule is made for."""
    from pipesat.heuristics import BASELINES

    home = BASELINES[row.baseline].placement
    return row.placement is None or home == "any" or row.placement.startswith(home)
