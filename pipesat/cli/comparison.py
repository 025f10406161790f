"""The text of ``pipesat compare``: one table, then what it left out and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from pipesat.cli.costs import statement_of
from pipesat.cli.exits import one_line
from pipesat.cli.table import Column, Line, print_table, wrapped
from pipesat.core.claims import at_most, excess, percent, times
from pipesat.workflows.compare import Comparison
from pipesat.workflows.rows import SOLVER_ROW, ScheduleRow, units_of

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Objective

BASIS = (
    "basis: same layers, devices, memory per device, link delays and microbatches; {stated}. "
    "loop v=2 and vee cut each in two between layers (of an odd number, one part has a layer more; "
    "where a part's share of an amount is no whole number, the first takes what is over); static "
    "memory goes with its layers; the hop from the last device to the first takes the slowest "
    "link's delay. bidirectional has two replicas of every layer, with the static memory of both, "
    "and half of the microbatches in each direction."
)


def print_comparison(
    comparisons: Sequence[Comparison], rows: Sequence[ScheduleRow], layers: Sequence[int] = ()
) -> None:
    """Print the rows of all comparisons, the best valid one first; nothing is cut or wrapped."""
    from pipesat.cli.console import stdout

    width = stdout().width
    problem, objective = comparisons[0].problem, comparisons[0].result.objective
    typer.echo(wrapped(_title(problem, objective), width))
    typer.echo("")
    lines = list(_lines(comparisons, rows))
    print_table(_columns(comparisons, objective), lines)
    typer.echo("")
    for text in (*_notes(comparisons), *_left_out(comparisons, rows)):
        typer.echo(wrapped(text, width))
    if len(comparisons) > 1:
        typer.echo(wrapped(BASIS.format(stated=statement_of(layers)), width))


def _title(problem: Problem, objective: Objective) -> str:
    heading = "; ".join([*units_of(problem), f"order and ratios by {objective}"])
    return one_line(f"{problem.name or 'problem'}: {heading}")


def _columns(comparisons: Sequence[Comparison], objective: Objective) -> list[Column]:
    """The table's columns; a narrow terminal loses the other objective's figures first."""
    spare = {"makespan": 0, "span": 3} if objective == "makespan" else {"makespan": 3, "span": 0}
    columns = [Column("schedule", number=False)]
    if len(comparisons) > 1:
        columns.append(Column("placement", number=False))
    columns += [
        Column("makespan", spare=spare["makespan"] and 2),
        Column("span", spare=spare["span"] and 2),
        Column("bubble\nof\nmakespan", spare=spare["makespan"]),
        Column("bubble\nof\nspan", spare=spare["span"]),
        Column("peak\nmemory", spare=1),
    ]
    if any(device.memory is not None for device in comparisons[0].problem.devices):
        columns.append(Column("of\ncap"))
    return [*columns, Column("to\nbest"), Column("to\nbound")]


def _lines(comparisons: Sequence[Comparison], rows: Sequence[ScheduleRow]) -> Iterator[Line]:
    """Valid rows from the best on, then those over the cap."""
    objective = comparisons[0].result.objective
    problems = {c.placement: c.problem for c in comparisons}
    capped = any(device.memory is not None for device in comparisons[0].problem.devices)
    several = len(comparisons) > 1

    def rank(row: ScheduleRow) -> tuple[int, bool]:
        return row.value(objective) or 0, row.name != SOLVER_ROW

    def cells(row: ScheduleRow) -> list[str]:
        from pipesat.cli.console import number

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

    yield from map(cells, sorted((row for row in rows if row.valid), key=rank))
    over = [row for row in rows if _over(problems[row.placement], row)]
    if over:
        yield "over the cap:"
        yield from map(cells, sorted(over, key=rank))


def _peak(problem: Problem, row: ScheduleRow) -> tuple[int | None, float | None]:
    """Peak memory of the device that is nearest to its cap (or farthest over it), and its share."""
    shares = [
        (peak / device.memory if device.memory else float(peak > 0), peak)
        for device, peak in zip(problem.devices, row.peak_memory or (), strict=False)
        if device.memory is not None
    ]
    if not shares:
        return max(row.peak_memory or (), default=None), None
    share, peak = max(shares)
    return peak, share


def _over(problem: Problem, row: ScheduleRow) -> bool:
    pairs = zip(problem.devices, row.peak_memory or (), strict=False)
    return any(device.memory is not None and peak > device.memory for device, peak in pairs)


def _notes(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What the solver proved, problem by problem."""
    for comparison in comparisons:
        result = comparison.result
        where = f"{SOLVER_ROW} ({comparison.placement})" if comparison.placement else SOLVER_ROW
        if result.schedule is None:
            why_not = result.explanation or "no schedule found in time"
            yield f"{where}: {one_line(why_not)}"
            continue
        bound = result.lower_bound
        by = "" if bound is None else f" (bound {bound.value}, {one_line(bound.source)})"
        yield f"{where}: {result.standing.verdict}{by}; found by {result.schedule.source}"
        yield from _given(comparison)


def _given(comparison: Comparison) -> Iterator[str]:
    """How far a user's own schedules are above the best, and above the optimum at most."""
    result = comparison.result
    for row in comparison.rows:
        if row.name not in comparison.given:
            continue
        value, bound = row.value(result.objective), result.lower_bound
        above = excess(value, result.value, row.name)
        said = (
            "as good as the best found" if above == 0 else f"{at_most(above)} above the best found"
        )
        if result.standing.proven:
            said = "optimal" if above == 0 else f"{at_most(above)} above the optimum"
        elif bound is not None and bound.value > 0:
            said += f", at most {at_most(excess(value, bound.value, row.name))} above the optimum"
        yield f"{one_line(row.name)}: {said}"


def _left_out(comparisons: Sequence[Comparison], rows: Sequence[ScheduleRow]) -> Iterator[str]:
    """Baselines without a line in the table, those with one reason together."""
    problems = {c.placement: c.problem for c in comparisons}
    reasons: dict[str, str] = {}
    shown = {row.name for row in rows if row.valid or _over(problems[row.placement], row)}
    for row in rows:
        if row.name not in shown and row.name != SOLVER_ROW and _wanted(row):
            reasons[row.name] = one_line(row.why_not or "")
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    if groups:
        yield "do not apply:"
    for reason, names in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        yield f"  {', '.join(names)}: {reason}"


def _wanted(row: ScheduleRow) -> bool:
    """Whether a row's reason is the one to tell: that of the placement the schedule is made for."""
    from pipesat.heuristics import BASELINES

    home = BASELINES[row.baseline].placement
    return row.placement is None or home == "any" or row.placement.startswith(home)
