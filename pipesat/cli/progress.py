"""The progress line of a solve: elapsed, best, bound, gap, source of the last improvement."""

from __future__ import annotations

import threading
import time
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipesat.cli.console import number
from pipesat.cli.exits import one_line
from pipesat.core.claims import Standing, percent
from pipesat.core.result import Improvement


class Progress:
    """A line that renews itself on a terminal; one line per improvement elsewhere.

    Every improvement is also kept in ``lines``, for ``solver.log``.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console = console
        self.lines: list[str] = []
        self.began = time.monotonic()
        self.last = Improvement(0.0, None, None, "starting")
        self.lock = threading.Lock()
        self.live = Live(
            get_renderable=self._line, console=console, refresh_per_second=4, transient=True
        )
        self.on_terminal = console.is_terminal and not quiet
        self.quiet = quiet

    def __enter__(self) -> Self:
        if self.on_terminal:
            self.live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.on_terminal:
            self.live.stop()

    def __call__(self, improvement: Improvement) -> None:
        """Take note of an improvement; from any thread."""
        with self.lock:
            self.last = improvement
            text = describe(improvement)
            self.lines.append(text)
            if not (self.on_terminal or self.quiet):
                if len(self.lines) == 1:  # not before: what is asked for may be refused
                    self.console.print("pipesat: solving", style=None)
                self.console.print(text, soft_wrap=True)

    def _line(self) -> Text:
        shown = self.last._replace(seconds=time.monotonic() - self.began)
        return Text(describe(shown), no_wrap=True, overflow="ellipsis")


def describe(improvement: Improvement) -> str:
    """Return one improvement as a line of text."""
    seconds, value, bound, source = improvement
    if value is not None and bound is not None and bound > value:
        bound = None  # refuted: the end of the command tells
    gap = Standing(value, bound).gap
    return (
        f"{seconds:7.1f} s  best {number(value)}  bound {number(bound)}  "
        f"gap {percent(gap)}  {one_line(source)}"
    )
