"""Predicted against measured as text and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from pipesat.core.claims import percent

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.runtime.answers import DevicePeak
    from pipesat.timeline.compare import AgainstPrediction

_EXPLAIN = 0.15  # error of the makespan from which users are told what to do
_ADVICE = {
    "op costs": "profile again, or take the measured costs: pipesat timeline refit",
    "cores shared with others": "ranks and other work take turns on the cores: run it on as many "
    "idle cores as there are ranks",
    "op times that vary": "the machine is shared or its clocks change: compare --noise says "
    "what the order stands",
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


def print_summary(comparison: AgainstPrediction) -> None:
    """Print makespans, error, and which assumption makes how much of it."""
    c = comparison
    if c.toy_model:
        _print_shape(c)
        return
    click.echo(
        f"makespan: predicted {milliseconds(c.predicted)} ms, measured {milliseconds(c.measured)} "
        f"ms (median of {c.steps} steps, {milliseconds(c.shortest)} to {milliseconds(c.longest)}), "
        f"error {percent(c.error, 1, sign=True)}"
    )
    for part in (part for part in c.parts if part.makes):
        share = percent(part.makes / c.measured if c.measured else 0.0, 1, sign=True)
        click.echo(
            f"  {part.assumption:<33} {part.makes / 1000:>+10,.2f} ms  {share:>8} of measured"
        )
    if abs(c.error) > _EXPLAIN:
        click.echo(f"largest: {c.largest.assumption}; {_ADVICE[c.largest.assumption]}")


def _print_shape(c: AgainstPrediction) -> None:
    """Print what a toy model's run says of an order: no times, which are of another model."""
    click.echo(
        "toy model: a small transformer ran, not the model that the costs are of (--model takes "
        "that one). The costs are scaled to its compute, so that only shapes are compared"
    )
    compute = sum(row.busy for row in c.devices) / len(c.devices)
    if compute:
        click.echo(
            f"makespan / mean compute of a device: predicted {c.predicted / compute:.2f}, measured "
            f"{c.measured / compute:.2f} (median of {c.steps} steps)"
        )


def print_peaks(problem: Problem, peaks: Sequence[DevicePeak]) -> None:
    """Print the most memory that each device held, predicted and measured."""
    from pipesat.cli.table import Column, print_table
    from pipesat.core.amounts import readable

    unit = f"\n({problem.memory_unit})" if problem.memory_unit else ""
    columns = [
        Column("device", number=False),
        Column(f"capacity{unit}"),
        Column(f"predicted{unit}"),
        Column("measured\npeak"),
        Column("error"),
        Column("", number=False),
    ]
    rows = [
        [
            peak.device,
            "unlimited" if peak.capacity is None else str(peak.capacity),
            str(peak.predicted),
            readable(peak.measured) if peak.in_units is None else f"{peak.in_units:.0f}",
            "-" if peak.error is None else percent(peak.error, 1, sign=True),
            "EXCEEDS its capacity" if peak.fits is False else "",
        ]
        for peak in peaks
    ]
    print_table(columns, rows)


def print_tables(problem: Problem, comparison: AgainstPrediction) -> None:
    """Print the tables of op kinds, devices and links; times in ms."""
    _print(("device", "op"), _KINDS, list(_kinds(problem, comparison)))
    _print(("device",), _DEVICES, list(_devices(problem, comparison)))
    _print(("stages",), _LINKS, list(_links(comparison)))


_KINDS = (
    "ops",
    "predicted\nms",
    "measured\nms",
    "measured /\npredicted",
    "5 % to 95 %",
    "on a\ncore",
)
_DEVICES = (
    "busy,\npredicted\nms",
    "busy\nms",
    "idle,\npredicted\nms",
    "idle\nms",
    "calls\nms",
    "overhead\nms",
)
_LINKS = ("predicted\nms", "measured\nms", "seen")


def _print(names: Sequence[str], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, and an empty line after it; nothing where there are no rows."""
    from pipesat.cli.table import Column, print_table

    if rows:
        columns = [*(Column(name, number=False) for name in names), *map(Column, heads)]
        print_table(columns, rows)
        click.echo("")


def _kinds(problem: Problem, comparison: AgainstPrediction) -> Iterator[list[str]]:
    for row in comparison.kinds:
        yield [
            problem.device_name(row.device),
            row.kind,
            str(row.count),
            milliseconds(row.predicted),
            milliseconds(row.measured),
            f"{row.measured / row.predicted:.2f}" if row.predicted else "-",
            f"{milliseconds(row.low)} to {milliseconds(row.high)}",
            "-" if row.cpu is None else milliseconds(row.cpu),
        ]


def _devices(problem: Problem, comparison: AgainstPrediction) -> Iterator[list[str]]:
    for row in comparison.devices:
        busy_and_idle = (row.predicted_busy, row.busy, row.predicted_idle, row.idle)
        times = (*busy_and_idle, row.calls, row.overhead)
        yield [problem.device_name(row.device), *map(milliseconds, times)]


def _links(comparison: AgainstPrediction) -> Iterator[list[str]]:
    for row in comparison.links:
        measured = "-" if row.measured is None else milliseconds(row.measured)
        predicted = milliseconds(row.predicted)
        yield [f"{row.source} -> {row.target}", predicted, measured, str(row.count)]
