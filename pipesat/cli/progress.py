"""The progress line of a solve: elapsed, best, bound, gap, source of the last improvement.

Where nothing improves it says every few seconds what is being done (:mod:`pipesat.core.progress`).
"""

from __future__ import annotations

import threading
import time
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipesat.core.amounts import Rounding, rounded, rounded_down, time_text
from pipesat.core.progress import being_done
from pipesat.core.showing import number
from pipesat.core.text_tables import one_line, wrapped
from pipesat.kernels.compiled import compiling
from pipesat.schedule.result import Improvement

SILENCE: Final = 4.0
"""Seconds after which something is printed, whether anything is better or not."""


_COMPILING: Final = "compiling loops, which are kept for later runs"
_PROVEN: Final = "ending: value and bound meet"


class Progress:
    """A line that renews itself on a terminal; elsewhere one per improvement, and in long silences.

    Improvements that show the same numbers are one.

    Every improvement is also kept in ``lines``, for ``solver.log``. With a ``limit`` it says of how
    many seconds.
    """

    def __init__(
        self, console: Console, *, quiet: bool = False, limit: float | None = None
    ) -> None:
        self.console = console
        self.limit = limit
        self.lines: list[str] = []
        self.heard = time.monotonic()  # of ``last``, whose seconds may be a clock of its own
        self.last = Improvement(0.0, None, None, "starting")
        self.shown = 0.0  # the latest time that a line had
        self.standing = ""
        """What the latest printed improvement said of best, bound and gap."""
        self.lock = threading.Lock()
        self.live = Live(
            get_renderable=self._line, console=console, refresh_per_second=4, transient=True
        )
        self.on_terminal = console.is_terminal and not quiet
        self.quiet = quiet
        self.printed = self.heard - SILENCE / 2  # a first sign of life comes sooner
        self.ended = threading.Event()
        self.beat = threading.Thread(target=self._break_silence, daemon=True)

    def __enter__(self) -> Self:
        if self.on_terminal:
            self.live.start(refresh=True)
        elif not self.quiet:
            self.beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        if self.on_terminal:
            self.live.stop()
        elif not self.quiet:
            self.beat.join()

    def __call__(self, improvement: Improvement) -> None:
        """Take note of an improvement; from any thread."""
        with self.lock:
            improvement = improvement._replace(seconds=self._at(improvement.seconds))
            self.last, self.heard = improvement, time.monotonic()
            text = describe(improvement, self.limit)
            self.lines.append(text)
            if not (self.on_terminal or self.quiet):
                if len(self.lines) == 1:  # not before: what is asked for may be refused
                    self.console.print("pipesat: solving", style=None)
                if (standing := _standing(improvement)) != self.standing:
                    self.standing = standing
                    self._print(text)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        with self.lock:
            line = one_line(text)
            self._print(wrapped(line, self.console.width) if self.on_terminal else line)

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)
        self.printed = time.monotonic()

    def _break_silence(self) -> None:
        while not self.ended.wait(max(0.0, self.printed + SILENCE - time.monotonic())):
            with self.lock:
                if time.monotonic() - self.printed >= SILENCE and not self.ended.is_set():
                    self._print(self._now())

    def _at(self, seconds: float) -> float:
        """A time by the search's clock, or the latest that was shown: lines never go back."""
        if self.lines:  # before the first of them, clocks of other work may be ahead
            self.shown = max(self.shown, seconds)
            return self.shown
        return seconds

    def _now(self) -> str:
        """What is known and what is being done; without a name, where the best is from."""
        seconds = self._at(self.last.seconds + time.monotonic() - self.heard)
        work = _COMPILING if compiling() else being_done()
        if self.last.value is None and self.last.bound is None:
            return f"{_clock(seconds, self.limit)}  {one_line(work or self.last.source)}"
        text = describe(self.last._replace(seconds=seconds), self.limit)
        if not work and self.last.value == self.last.bound:
            work = _PROVEN
        return f"{text}; now {one_line(work)}" if work else text

    def _line(self) -> Text:
        return Text(self._now(), no_wrap=True, overflow="ellipsis")


def _clock(seconds: float, limit: float | None) -> str:
    return f"{seconds:7.1f}{'' if limit is None else f' of {limit:g}'} s"


def describe(improvement: Improvement, limit: float | None = None) -> str:
    """Return one improvement as a line of text, with the time limit if it is given."""
    clock, source = _clock(improvement.seconds, limit), one_line(improvement.source)
    return f"{clock}  {_standing(improvement)}  {source}"


def _standing(improvement: Improvement) -> str:
    """What an improvement says of best, bound and gap."""
    _, value, _, _, unit = improvement
    standing = improvement.standing
    bound, gap = standing.bound, standing.gap_text()
    best = _shown(value, unit)
    least = best if value == bound else _shown(bound, unit, rounded_down)
    return f"best {best}  bound {least}  gap {gap}"


def _shown(value: int | None, unit: str, towards: Rounding = rounded) -> str:
    """Show a time in milliseconds if its unit is known."""
    return time_text(value, unit, towards) if value is not None and unit else number(value)
