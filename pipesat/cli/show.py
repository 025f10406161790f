"""``pipesat show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pipesat.cli.arguments import ProblemFile, ScheduleFile
from pipesat.cli.exits import one_line

if TYPE_CHECKING:
    from pipesat.workflows.schedules import ShownSchedule


def show(
    problem: ProblemFile,
    schedule: ScheduleFile,
    critical_path: Annotated[
        bool, typer.Option("--critical-path", help="List the chain that sets the makespan.")
    ] = False,
) -> None:
    """Show a schedule as a text grid, and where each device's time goes."""
    from pipesat.cli.console import stdout
    from pipesat.cli.naming import naming
    from pipesat.cli.reading import read_problem
    from pipesat.workflows.schedules import show as run

    data = read_problem(problem)
    with naming(problem):
        shown = run(data, schedule, width=stdout().width)
    typer.echo(str(shown))
    typer.echo("")
    _print_times(shown)
    if critical_path:
        _print_critical_path(shown)


def _print_times(shown: ShownSchedule) -> None:
    from pipesat.cli.table import Column, print_table
    from pipesat.core.claims import percent

    problem, metrics = shown.problem, shown.metrics
    heads = ("busy", "warm-up", "no input", "no memory", "unforced", "cool-down", "peak mem.")
    rows = []
    for device, (times, peak) in enumerate(zip(metrics.devices, metrics.peak_memory, strict=True)):
        parts = (times.busy, times.warm_up, times.input, times.memory, times.unforced)
        rows.append([problem.device_name(device), *map(str, (*parts, times.cool_down, peak))])
    print_table([Column("device", number=False), *map(Column, heads)], rows)
    typer.echo(
        f"\nmakespan {metrics.makespan} (bubble {percent(metrics.bubble_of_makespan)}), "
        f"span {metrics.span} (bubble {percent(metrics.bubble_of_span)})"
    )
    for name, said in shown.differing():
        typer.echo(one_line(f"{name}: {said}"))


def _print_critical_path(shown: ShownSchedule) -> None:
    problem = shown.problem
    typer.echo("\ncritical path:")
    reason = {"device": "after the op before", "input": "when its input arrives", "start": ""}
    path = shown.critical_path
    widest = max([8, *(len(str(step.timed.item)) for step in path)])  # pairs have long texts
    for device, timed, through in path:
        typer.echo(
            f"  {timed.start:>10} to {timed.end:>10}  {timed.item!s:<{widest}} "
            f"{one_line(problem.device_name(device)):<10} {reason[through]}".rstrip()
        )
