"""How far a sweep is: a bar on a terminal, a line per case elsewhere. On stderr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipesat.cli.exits import one_line
from pipesat.cli.sweep_report import short, values_of, varying
from pipesat.core.showing import number
from pipesat.sweep.cases import Case
from pipesat.sweep.rows import FAILURES, SweepRow, standing_of

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
