"""``pipesat compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from pipesat.cli.arguments import AsJson, OutputFolder, ProblemFile, TimeLimit
from pipesat.cli.exits import end_of_solve, one_line

if TYPE_CHECKING:
    from pipesat.problem import Problem
    from pipesat.result import Result
    from pipesat.workflows import Row


def compare(
    problem: ProblemFile,
    output: OutputFolder = None,
    time_limit: TimeLimit = 60.0,
    as_json: AsJson = False,
) -> None:
    """Show every applicable baseline beside the solver's answer.

    With -o, also write what `solve` writes.
    """
    from pipesat.cli.console import print_json, stderr
    from pipesat.cli.interrupts import Interrupts
    from pipesat.cli.progress import Progress

    with Interrupts() as interrupts:
        from pipesat.files.atomic import prepare_folder
        from pipesat.files.problem_file import read_problem
        from pipesat.workflows import compare as rows_of
        from pipesat.workflows import solve

        data = read_problem(problem)
        if output is not None:
            prepare_folder(output)
        with Progress(stderr()) as progress:
            result = solve(data, time_limit=time_limit, listener=progress, stop=interrupts.stop)
        if output is not None:
            from pipesat.export.result_folder import write_result_folder

            write_result_folder(output, result, progress.lines)
        rows = list(rows_of(data, result))
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        print_rows(data, result, rows)
        if output is not None and result.schedule is not None:
            typer.echo(f"\npicture: {one_line(str(output / 'gantt.png'))}")
    end_of_solve(result, interrupts.exit_code)


def print_rows(problem: Problem, result: Result, rows: Sequence[Row]) -> None:
    """Print the comparison as a table, the shortest valid schedule first."""
    from rich.table import Table

    from pipesat.cli.console import number, percent, stdout

    unit = f" ({problem.time_unit})" if problem.time_unit else ""
    title = one_line(f"{problem.name or 'problem'}{unit}")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("schedule", no_wrap=True)
    for head in ("makespan", "span", "bubble of\nmakespan", "bubble of\nspan", "peak\nmemory"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", min_width=8)
    for row in sorted(rows, key=_rank):
        bubble = row.bubble or {"makespan": None, "span": None}
        table.add_row(
            row.name,
            number(row.makespan),
            number(row.span),
            percent(bubble["makespan"]),
            percent(bubble["span"]),
            number(max(row.peak_memory) if row.peak_memory else None),
            _remark(row, problem, result),
        )
    stdout().print(table)


def _rank(row: Row) -> tuple[bool, bool, int]:
    return (row.makespan is None, not row.valid, row.makespan or 0)


def _remark(row: Row, problem: Problem, result: Result) -> str:
    for device, peak in zip(problem.devices, row.peak_memory or (), strict=False):
        if device.memory is not None and peak > device.memory:
            return "over capacity"
    if row.why_not:
        return one_line(row.why_not)
    if row.name != "solver":
        return ""
    if result.status == "optimal":
        return "proven optimal"
    bound = None if result.lower_bound is None else result.lower_bound.value
    return f"bound {bound}, gap {100 * (result.gap or 0):.2f} %"
