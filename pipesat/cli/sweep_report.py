"""A sweep's rows for people and spreadsheets: the list of cases, the summary, the CSV file."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipesat.cli.exits import one_line
from pipesat.cli.terminal import Column, print_json, print_table
from pipesat.core.claims import percent
from pipesat.core.showing import number
from pipesat.files.atomic import write_file
from pipesat.sweep.cases import Case
from pipesat.sweep.rows import FAILURES, SweepRow, standing_of

_MOST_LINES: Final = 40  # of the table; where there are more rows, the best of each group
_CHOICES: Final = ("placement", "chunks", "split", "backward", "seed", "time_limit")
"""Axes that are chosen; rows that differ in no other are of one question: a group."""

_LONGEST_WHY: Final = 90
_RESULT: Final = (
    "value",
    "makespan",
    "span",
    "lower_bound",
    "lower_bound_source",
    "gap",
    "seed",
    "workers",
)


def varying(axes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the axes that have more than one value."""
    names = axes[0] if axes else ()
    return [name for name in names if len({json.dumps(case.get(name)) for case in axes}) > 1]


def values_of(axes: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Values as they stand in the sweep file; ``-`` where there is none."""
    return [_text(axes.get(name)) for name in names]


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else one_line(str(value))


def short(why: str | None) -> str:
    """Return the beginning of a reason; all of it is in the row."""
    return textwrap.shorten(one_line(why or ""), _LONGEST_WHY, placeholder=" ...")


def list_cases(cases: Sequence[Case], known: Mapping[str, SweepRow], *, as_json: bool) -> None:
    """Print every case, what it is, and whether it has a row."""
    if as_json:
        print_json(
            [
                {
                    "key": case.key,
                    "case": dict(case.axes),
                    "ops": case.ops or None,
                    "refused": case.refused or None,
                    "status": known[case.key]["status"] if case.key in known else None,
                }
                for case in cases
            ]
        )
        return
    axes = varying([case.axes for case in cases])
    columns = [Column("key", number=False), *map(Column, axes)]
    columns += [Column("ops"), Column("row", number=False)]
    lines = []
    for case in cases:
        state = known[case.key]["status"] if case.key in known else "to run"
        if case.refused and case.key not in known:
            state = f"refused: {short(case.refused)}"
        ops = number(case.ops or None)
        lines.append([case.key[:12], *values_of(case.axes, axes), ops, state])
    print_table(columns, lines, wrap_last=True)
    left = sum(case.key not in known for case in cases)
    click.echo(f"{len(cases)} cases, {left} to run")


def report(cases: Sequence[Case], rows: Sequence[SweepRow], path: Path, *, as_json: bool) -> None:
    """Print the rows of these cases, or the best of each group, and how they ended."""
    counts = Counter(row["status"] for row in rows)
    if as_json:
        print_json(
            {
                "cases": len(cases),
                "missing": len(cases) - len(rows),
                "status": dict(sorted(counts.items())),
                "file": str(path),
                "rows": list(rows),
            }
        )
        return
    shown = list(rows)
    if len(shown) > _MOST_LINES:
        chosen = [name for name in varying([row["case"] for row in shown]) if name in _CHOICES]
        shown = _best_of_groups(shown)
        if chosen:
            click.echo(f"The best {', '.join(chosen)} for each of the others:")
    print_rows(shown[:_MOST_LINES])
    if len(shown) > _MOST_LINES:
        click.echo(f"... and {len(shown) - _MOST_LINES} more")
    ends = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "none"
    missing = f"; {len(cases) - len(rows)} have no row yet" if len(rows) < len(cases) else ""
    click.echo(f"{len(cases)} cases: {ends}{missing}")
    click.echo(one_line(f"rows in {path}"))


def print_rows(rows: Sequence[SweepRow]) -> None:
    """Print a line per row."""
    axes = varying([row["case"] for row in rows])
    columns = [
        *(Column(name.replace("_", "\n")) for name in axes),
        Column("status", number=False),
        Column("value"),
        Column("lower\nbound", spare=2),
        Column("gap"),
        Column("bubble", spare=1),
        Column("best\nbaseline", spare=3),
        Column("its\nname", number=False, spare=4),
        Column("seconds", spare=5),
        Column("why", number=False),
    ]
    if not any(row["why"] for row in rows):
        columns.pop()
    lines = [[*values_of(row["case"], axes), *_cells(row)][: len(columns)] for row in rows]
    print_table(columns, lines, wrap_last=columns[-1].head == "why")


def _cells(row: SweepRow) -> list[str]:
    result = row["result"] or {}
    bubble = (result.get("bubble") or {}).get(result.get("objective"))
    baseline = result.get("baseline") or {}
    seconds = "-" if row["wall_s"] is None else f"{row['wall_s']:.1f}"
    value, bound = (number(result.get(name)) for name in ("value", "lower_bound"))
    best = (number(baseline.get("value")), baseline.get("name", "-"))
    share = (standing_of(row).gap_text(), percent(bubble))
    return [str(row["status"]), value, bound, *share, *best, seconds, short(row["why"])]


def _best_of_groups(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """Keep the row of least value of every group, or its first where none has a value."""
    best: dict[str, SweepRow] = {}
    for row in rows:
        group = {name: value for name, value in row["case"].items() if name not in _CHOICES}
        name = json.dumps(group, sort_keys=True)
        if name not in best or _worth(row) < _worth(best[name]):
            best[name] = row
    return list(best.values())


def _worth(row: SweepRow) -> float:
    value = (row["result"] or {}).get("value")
    return float("inf") if value is None or row["status"] in FAILURES else float(value)


def write_csv(path: Path, rows: Sequence[SweepRow]) -> None:
    """Write one line per row: its axes, then its result; what is unknown is empty."""
    text = io.StringIO()
    records = [_record(row) for row in rows]
    names = list(dict.fromkeys(name for record in records for name in record))
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(records)
    write_file(path, text.getvalue().encode())


def _record(row: SweepRow) -> dict[str, Any]:
    result = row["result"] or {}
    bubble, baseline = result.get("bubble") or {}, result.get("baseline") or {}
    axes = {name: None if value is None else _text(value) for name, value in row["case"].items()}
    known = result | {"gap": standing_of(row).gap}
    figures = {name: known.get(name) for name in _RESULT if name not in axes}
    return (
        {"key": row["key"], "status": row["status"]}
        | axes
        | figures
        | {
            "bubble_makespan": bubble.get("makespan"),
            "bubble_span": bubble.get("span"),
            "largest_peak_memory": max(result.get("peak_memory") or [], default=None),
            "baseline": baseline.get("name"),
            "baseline_value": baseline.get("value"),
            "wall_s": row["wall_s"],
            "peak_mib": row["peak_mib"],
            "why": row["why"],
        }
    )


_START = 1.0  # seconds around a solve, for the estimate


class SweepProgress:
    """Says at the start what is to be done, and takes note of every new row."""

    def __init__(
        self, console: Console, cases: Sequence[Case], todo: Sequence[Case], room: int
    ) -> None:
        self.console = console
        self.axes = varying([case.axes for case in cases])
        self.total = len(todo)
        self.ended = self.failed = 0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[last]}"),
            console=console,
            transient=True,
        )
        self.task = self.bar.add_task("cases", total=self.total, last="")
        self._say(_plan(len(cases), todo, room))

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def __call__(self, row: SweepRow) -> None:
        """Take note of a row."""
        self.ended += 1
        self.failed += row["status"] in FAILURES
        text = _describe(row, self.axes)
        if self.console.is_terminal:
            failures = f"{self.failed} failed; " if self.failed else ""
            self.bar.update(self.task, completed=self.ended, last=failures + text)
        else:
            self._say(f"[{self.ended}/{self.total}] {text}")

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)


def _plan(cases: int, todo: Sequence[Case], room: int) -> str:
    seconds = sum(case.solve["time_limit"] + _START for case in todo if not case.refused) / room
    minutes = int(-(-seconds // 60))
    most = f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
    return (
        f"pipesat: {len(todo)} of {cases} cases to run, {room} at a time, in about {most} at most"
    )


def _describe(row: SweepRow, axes: Sequence[str]) -> str:
    case = " ".join(values_of(row["case"], axes))
    result = row["result"] or {}
    text = f"{case}: {row['status']}" if case else str(row["status"])
    if result.get("value") is not None:
        text += f" {number(result['value'])} gap {standing_of(row).gap_text()}"
    elif row["why"]:
        text += f" ({short(row['why'])})"
    return one_line(text)
