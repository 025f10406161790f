"""The text of ``pipesat frontier`` and ``pipesat min-memory``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipesat.cli.exits import one_line
from pipesat.cli.table import Column, print_table, wrapped
from pipesat.core.claims import as_given, at_most, excess, plural
from pipesat.core.rounding import rounded_up
from pipesat.core.stage import KEEP
from pipesat.workflows.comparison import statement_of
from pipesat.workflows.rows import units_of

if TYPE_CHECKING:
    from pipesat.core.claims import Standing
    from pipesat.frontier.answers import Frontiers
    from pipesat.frontier.caps import Scale1F1B
    from pipesat.frontier.compared import Compared
    from pipesat.frontier.curve import Curve
    from pipesat.frontier.min_memory import Sufficient
    from pipesat.frontier.trace import CapRow, Frontier


def print_frontier(found: Frontiers, folder: Path | None, layers: Sequence[int] = ()) -> None:
    """Print a table per curve, the hand-written schedules beside it, and what levers buy."""
    from pipesat.cli.console import stdout

    curves = found.curves

    for frontier in curves.values():
        frontier.require_consistent()
    width = stdout().width
    for placement, frontier in curves.items():
        typer.echo(wrapped(_title(frontier.curve, placement), width))
        typer.echo("")
        print_table(_columns(frontier), [_cells(row) for row in frontier.rows])
        typer.echo("")
        _print_published(frontier)
        for text in _notes(frontier):
            typer.echo(wrapped(text, width))
        typer.echo("")
    if rows := found.compared():
        typer.echo("the best of each curve at the same caps (in brackets: the gap to its bound)\n")
        _print_compared(rows)
    if texts := found.answers():
        for text in texts:
            typer.echo(wrapped(one_line(text), width))
        typer.echo("")
    if layers:
        basis = "a loop and a V cut each in two between layers"
        typer.echo(wrapped(f"basis: {statement_of(layers)}; {basis}", width))
    if folder is not None:
        typer.echo(one_line(f"picture: {folder / 'frontier.png'}"))


def _print_compared(rows: Sequence[Compared]) -> None:
    """Print a line per capacity: the best of each lever, and what is proven of it."""
    *names, last = rows[0].standings
    columns = [Column("cap"), Column("x 1F1B")]
    columns += [Column("keep\n(wait)" if n == KEEP else n, spare=1) for n in names]
    columns += [Column(last.replace(" or ", "\nor "))]
    lines = []
    for row in rows:
        share = "-" if row.share is None else rounded_up(row.share, 3)
        lines.append([str(row.cap), share, *map(_best, row.standings.values())])
    print_table(columns, lines)
    typer.echo("")


def _best(standing: Standing) -> str:
    if standing.value is None:
        return "infeasible" if standing.infeasible else "-"
    return f"{standing.value} ({'optimal' if standing.proven else standing.gap_text()})"


def _title(curve: Curve, placement: str | None) -> str:
    problem = curve.problem
    units = units_of(problem)
    name = problem.name or "problem"
    if placement is not None and not name.endswith(placement):
        name = f"{name}, {placement}"
    heading = "; ".join([*units, "a cap is the capacity of every device, static memory included"])
    return one_line(f"{name}: {heading}")


def _columns(frontier: Frontier) -> list[Column]:
    return [
        Column("cap"),
        Column("x 1F1B"),
        Column(frontier.curve.objective),
        Column("bound", spare=1),
        Column("gap"),
        Column("status", number=False),
        Column("over\nbest"),
        Column("largest\npeak", spare=2),
        Column("best\nhand-written", spare=3),
        Column("found by", number=False, spare=5),
        Column("seconds", spare=4),
    ]


def _cells(row: CapRow) -> list[str]:
    from pipesat.cli.console import number

    known, bound, baseline = row.known, row.bound, row.baseline
    return [
        "unlimited" if row.cap is None else str(row.cap),
        "-" if row.share is None else rounded_up(row.share, 3),
        number(None if known is None else known.value),
        number(None if bound is None else bound.value),
        at_most(row.gap),
        row.status,
        at_most(row.over_best, 1),
        number(None if known is None else known.peak),
        "-" if baseline is None else f"{baseline.value} {baseline.name:<12}",
        "" if known is None else known.schedule.source,
        f"{row.seconds:.1f}",
    ]


def _print_published(frontier: Frontier) -> None:
    """Hand-written schedules by peak, with what the curve has at the same memory."""
    from pipesat.cli.console import number

    points = sorted(frontier.points, key=lambda point: (point.known.peak, point.known.value))
    if not points:
        return
    columns = [
        Column("hand-written", number=False),
        Column("peak"),
        Column("x 1F1B"),
        Column(frontier.curve.objective),
        Column("the curve there"),
        Column("above it"),
    ]
    lines = []
    for point in points:
        at_peak = frontier.curve.value(point.known.peak)
        above = excess(point.known.value, at_peak, point.name)
        scale = frontier.scale
        share = "-" if scale is None else rounded_up(scale.share(point.known.peak), 3)
        cells = [point.name, str(point.known.peak), share, str(point.known.value)]
        lines.append([*cells, number(at_peak), at_most(above)])
    print_table(columns, lines)
    typer.echo("")


def _notes(frontier: Frontier) -> Iterator[str]:
    best = frontier.curve.best(None)
    if best is not None:
        more = f"the best {frontier.curve.objective} found, {best.value}, needs {best.peak}"
        if frontier.scale is not None:
            more += f" ({rounded_up(frontier.scale.share(best.peak), 3)} x 1F1B)"
        if frontier.curve.status(None) == "optimal":
            more += (
                "; optimal for these stages and their times, whatever the memory: another split, "
                "or less recomputing, is another problem"
            )
        yield more
    if frontier.scale is not None:
        scale = frontier.scale
        largest = ", the largest of any device" if scale.static else ""
        yield (
            f"x 1F1B: (cap - {scale.static} static{largest}) / {scale.activations}, the "
            "activations that 1F1B holds of these layers on one stage per device"
        )
        yield from _where_1f1b_fits(frontier, scale)
    gaps = [row.gap for row in frontier.rows if row.gap is not None]
    if gaps:
        proven = sum(row.status == "optimal" for row in frontier.rows)
        yield (
            f"{proven} of {len(frontier.rows)} points proven optimal, largest gap "
            f"{at_most(max(gaps))}, {frontier.wall_s:.1f} s"
        )


def _where_1f1b_fits(frontier: Frontier, scale: Scale1F1B) -> Iterator[str]:
    """Say why 1F1B is not at 1, if it is not."""
    for point in frontier.points:
        peak = point.known.peak
        if point.name == "1f1b" and scale.share(peak) < 1:
            yield (
                f"1F1B itself needs {peak}, less than {scale.cap(Fraction(1))} at 1 x: no device "
                "has both the most static memory and the most activations"
            )


def print_sufficient(found: Sufficient, within: Fraction, folder: Path | None) -> None:
    """Print what the question was, and each answer with what is proven of it."""
    from pipesat.cli.console import stdout

    width = stdout().width
    for name, text in _answers(found, within):
        typer.echo(wrapped(f"{name:<22}{one_line(text)}", width))
    if found.known is not None:
        typer.echo("")
        _print_devices(found)
    if folder is not None:
        typer.echo("\n" + one_line(f"written to {folder}"))


def _answers(found: Sufficient, within: Fraction) -> Iterator[tuple[str, str]]:
    curve, best, cap, sums = found.curve, found.best, found.cap, found.lightest
    unit = f" {curve.problem.time_unit}" if curve.problem.time_unit else ""
    of = "unlimited memory" if best.memory == "unlimited" else "the file's capacities"
    if best.value is None or cap is None:
        yield "best", f"no schedule found in time with {of}"
        return
    proof = best.standing.verdict
    if best.bound is not None and not best.standing.proven:
        proof = f"bound {best.bound.value}, {proof}"
    yield f"best {curve.objective}", f"{best.value}{unit} with {of} ({proof})"
    yield "target", f"{cap.target}{unit}, at most {as_given(within)} longer"
    yield "smallest cap", _cap_text(found)
    if cap.undecided:
        below = "no smaller cap is proven to be too little"
        if cap.too_little is not None:
            below = f"{cap.too_little} is proven to be too little"
        many = f"{cap.undecided} {plural(cap.undecided, 'cap')}"
        yield "not decided", f"{below}; {many} between them might do"
    if sums is not None:
        proof = "proven smallest" if sums.standing.proven else f"bound {sums.bound}"
        yield "sum of peaks", f"{sums.value} within that cap ({proof})"
        yield curve.objective, f"{sums.known.value}{unit}, found by {sums.known.schedule.source}"
    yield "time", f"{found.wall_s:.1f} s"


def _cap_text(found: Sufficient) -> str:
    cap, scale = found.cap, found.scale
    if cap is None or cap.enough is None:
        return "none found in time"
    unit = f" {found.curve.problem.memory_unit}" if found.curve.problem.memory_unit else ""
    text = f"{cap.enough}{unit} on every device"
    if scale is not None:
        text += f", {rounded_up(scale.share(cap.enough), 3)} x 1F1B"
    return f"{text} ({'proven' if cap.proven else 'not proven'} smallest)"


def _print_devices(found: Sufficient) -> None:
    sums, problem = found.lightest, found.curve.problem
    if sums is None:
        return
    columns = [Column("device", number=False), Column("peak"), Column("at least")]
    lines = [
        [problem.device_name(device), str(peak), str(least)]
        for device, (peak, least) in enumerate(zip(sums.known.peaks, sums.least, strict=True))
    ]
    print_table(columns, lines)
