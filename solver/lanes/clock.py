"""When to end: the time limit and the stop, of a whole solve or of a part of it.

How fast things go stands here, once: it decides what is worth a try in the time that is left, and
what a deterministic clock counts for work that CP-SAT does not count itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

GREEDY_OPS_PER_SECOND = 4_000_000
"""Ops that a compiled pass over an order handles; every pass costs ``_PASS`` besides."""
CHECKED_OPS_PER_SECOND = 600_000
"""Ops of orders that are made, timed and checked."""
WINDOW_OPS_PER_SECOND = 100_000
"""Ops of which a few windows are worth a second: each takes 3 us an op, beside its model."""
CONSTRAINTS_PER_SECOND = 8_000
"""Constraints that can be built and presolved in a part of each second."""
BUILT_PER_SECOND = 60_000
"""Constraints that are built and handed over, without their presolve."""
_PASS = 50e-6
# Measured as processor time on one core of 2026, loops warm, on chains of 384, 1,536 and 12,288
# ops: `justified` with 200 passes, `time_order` and `check`, and 30 steps of `WindowSearch` less
# what CP-SAT took, which is 3 us an op and 16 us a constraint.


@dataclass
class Clock:
    """Time since it was started, in seconds, its limit, and whether to stop before.

    A deterministic clock does not look at the time: it counts what is reported to it, so that what
    depends on it comes out the same whatever the load of the machine. It is told CP-SAT's own
    deterministic time, and for models and greedy passes about the seconds that they take.

    Attributes
    ----------
    whole
        The clock of which this is a part, if any: its time passes here too, and its end is an end.
    """

    limit: float
    deterministic: bool = False
    stop: Callable[[], bool] = lambda: False
    whole: Clock | None = None
    began: float = field(default_factory=time.monotonic)
    counted: float = 0.0

    @property
    def elapsed(self) -> float:
        """Time since the start, as this clock counts it."""
        if self.whole is not None:
            return self.whole.elapsed - self.began
        return self.counted if self.deterministic else self.seconds

    @property
    def seconds(self) -> float:
        """Seconds since the start of the whole."""
        return time.monotonic() - self.began if self.whole is None else self.whole.seconds

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(0.0, self.limit - self.elapsed)

    @property
    def over(self) -> bool:
        """Whether to end: out of time, or told to stop."""
        return self.stop() or not self.left or (self.whole is not None and self.whole.over)

    def part(self, limit: float, stop: Callable[[], bool] = lambda: False) -> Clock:
        """Start a clock of at most so many seconds of what is left, with a stop of its own."""
        return Clock(min(limit, self.left), self.deterministic, stop, self, self.elapsed)

    def count(self, time: float) -> None:
        """Report work that a deterministic clock should count."""
        if self.whole is None:
            self.counted += time
        else:
            self.whole.count(time)

    def count_ops(self, ops: int, *, checked: bool = False) -> None:
        """Report a pass over so many ops, or a schedule of them; see :meth:`count`."""
        self.count(_PASS + ops / (CHECKED_OPS_PER_SECOND if checked else GREEDY_OPS_PER_SECOND))
