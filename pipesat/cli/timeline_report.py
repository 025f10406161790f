"""Predicted against measured as text and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from pipesat.cli.exits import one_line
from pipesat.core.claims import percent

if TYPE_CHECKING:
    from rich.table import Table

    from pipesat.core.problem import Problem
    from pipesat.timeline.compare import Comparison

_EXPLAIN = 0.15  # error of the makespan from which users are told what to do
_ADVICE = {
    "op costs": "profile again, or take the measured costs: pipesat timeline refit",
    "cores shared with others": "ranks and other work take turns on the cores: run it on as many "
    "idle cores as there are ranks",
    "op times that vary": "the machine is shared or its clocks change: pipesat risk says what the "
    "order stands",
    "send and receive calls that block": "the runtime blocks while it sends: raise the costs by "
    "it, as pipesat timeline refit does",
    "overhead between ops": "the runtime needs time for every op: larger microbatches, or costs "
    "that include it, as pipesat timeline refit has them",
    "link delays": "the links are not as fast as the problem says: pipesat timeline refit",
    "not explained": "delays that vary, or work outside of the ops",
}


def milliseconds(us: float) -> str:
    """Show microseconds as milliseconds."""
    return f"{us / 1000:,.2f}"


def print_summary(comparison: Comparison) -> None:
    """Print makespans, error, and which assumption makes how much of it."""
    c = comparison
    typer.echo(
        f"makespan: predicted {milliseconds(c.predicted)} ms, measured {milliseconds(c.measured)} "
        f"ms (median of {c.steps} steps, {milliseconds(c.shortest)} to {milliseconds(c.longest)}), "
        f"error {percent(c.error, 1, sign=True)}"
    )
    for part in (part for part in c.parts if part.makes):
        share = percent(part.makes / c.measured if c.measured else 0.0, 1, sign=True)
        typer.echo(
            f"  {part.assumption:<33} {part.makes / 1000:>+10,.2f} ms  {share:>8} of measured"
        )
    if abs(c.error) > _EXPLAIN:
        typer.echo(f"largest: {c.largest.assumption}; {_ADVICE[c.largest.assumption]}")


def print_tables(problem: Problem, comparison: Comparison) -> None:
    """Print the tables of op kinds, devices and links; times in ms."""
    from pipesat.cli.console import stdout

    console = stdout()
    for table in (
        _kinds(problem, comparison),
        _devices(problem, comparison),
        _links(comparison),
    ):
        if table.row_count:
            console.print(table)
            typer.echo("")


def _table(first: Iterable[str], heads: Iterable[str]) -> Table:
    from rich.table import Table

    table = Table(box=None)
    for head in first:
        table.add_column(head, no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    return table


def _kinds(problem: Problem, comparison: Comparison) -> Table:
    table = _table(
        ("device", "op"),
        ("ops", "predicted ms", "measured ms", "measured / predicted", "5 % to 95 %", "on a core"),
    )
    for row in comparison.kinds:
        ratio = f"{row.measured / row.predicted:.2f}" if row.predicted else "-"
        table.add_row(
            one_line(problem.device_name(row.device)),
            row.kind,
            str(row.count),
            milliseconds(row.predicted),
            milliseconds(row.measured),
            ratio,
            f"{milliseconds(row.low)} to {milliseconds(row.high)}",
            "-" if row.cpu is None else milliseconds(row.cpu),
        )
    return table


def _devices(problem: Problem, comparison: Comparison) -> Table:
    table = _table(
        ("device",),
        (
            "busy, predicted ms",
            "busy ms",
            "idle, predicted ms",
            "idle ms",
            "calls ms",
            "overhead ms",
        ),
    )
    for row in comparison.devices:
        times = (
            row.predicted_busy, row.busy, row.predicted_idle, row.idle, row.calls, row.overhead,
        )  # fmt: skip
        table.add_row(one_line(problem.device_name(row.device)), *map(milliseconds, times))
    return table


def _links(comparison: Comparison) -> Table:
    table = _table(("stages",), ("predicted ms", "measured ms", "seen"))
    for row in comparison.links:
        measured = "-" if row.measured is None else milliseconds(row.measured)
        table.add_row(
            f"{row.source} -> {row.target}",
            milliseconds(row.predicted),
            measured,
            str(row.count),
        )
    return table
