"""How a search that needs many solves calls them, and the time that they share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from pipesat.schedule.result import Improvement

Listener: TypeAlias = Callable[[Improvement], None]

Starts: TypeAlias = Literal["all", "greedy", "none"]
"""Schedules to make for a problem before it is searched: every hand-written one, those of list
scheduling (which fit any capacities and cost little), or none."""

LEAST_SECONDS: Final = 0.05  # a solve with less time left is not worth its start


_AFTER: Final[list[Callable[[], None]]] = []
_DEPTH: Final[list[None]] = []  # of studies within each other


@contextmanager
def study() -> Iterator[None]:
    """Let what one solve has started serve the next: ``with study():``, or as a decorator."""
    _DEPTH.append(None)
    try:
        yield
    finally:
        _DEPTH.pop()
        for end in _AFTER if not _DEPTH else ():
            end()


def studying(end: Callable[[], None]) -> bool:
    """Whether there may be a next solve; ``end`` is called when the last study is over."""
    if end not in _AFTER:
        _AFTER.append(end)
    return bool(_DEPTH)


@dataclass
class Deadline:
    """A time limit in seconds from the start, and an event that ends the search earlier."""

    limit: float
    stop: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0; 0 once it is stopped."""
        return 0.0 if self.stop.is_set() else max(0.0, self.limit - self.seconds)

    @property
    def over(self) -> bool:
        """Whether another solve is not worth its start."""
        return self.left < LEAST_SECONDS

    def past(self, share: float) -> bool:
        """Whether a share of the limit has passed, or it is stopped."""
        return self.stop.is_set() or self.seconds > share * self.limit


def named(listener: Listener | None, name: str | None, began: float = 0.0) -> Listener | None:
    """A listener to one search of several: it says which, and counts seconds from the first on."""
    if listener is None or name is None:
        return listener

    def tell(improvement: Improvement) -> None:
        seconds, source = began + improvement.seconds, f"{name}, {improvement.source}"
        listener(improvement._replace(seconds=seconds, source=source))

    return tell


class EitherStop(threading.Event):
    """Set when it is set itself, or when the other one is, if there is one."""

    def __init__(self, other: threading.Event | None = None) -> None:
        super().__init__()
        self.other = other

    def is_set(self) -> bool:
        """Whether to stop."""
        return super().is_set() or (self.other is not None and self.other.is_set())
