"""A search in a thread of its own, so that its caller hears signals and the clock meanwhile."""

from __future__ import annotations

import atexit
import math
import time
from collections.abc import Callable
from typing import Final

from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import GuardedThread

_LOOK: Final = 0.05  # seconds between two looks at the clock and its stop
_GRACE: Final = 0.6  # seconds that what cannot be interrupted has, once the clock is over
_FIRST: Final = 3.0  # seconds that it has for a first schedule
_PROVEN: Final = 12.0  # seconds that it has once the best is proven: a loop may be compiling
_AT_EXIT: Final = 2.0  # seconds for what was left behind to end, before the interpreter goes


def aside(
    search: Callable[[], None],
    incumbent: Incumbent,
    later: Callable[[], None],
    at_last: Callable[[], object],
) -> None:
    """Run a search; return when it has ended, or soon after the clock is over or all is proven.

    Work that cannot be interrupted is left behind then: the incumbent has what was found. Where
    that is no schedule, ``at_last`` offers one, if it can. ``later`` is called now and then.

    What the search raises is raised here.
    """
    thread, clock = GuardedThread(search, "search"), incumbent.clock
    until = math.inf
    while thread.is_alive():
        thread.join(_LOOK)
        ended = clock.stop() or (not clock.deterministic and clock.over)
        if ended:
            grace = _FIRST if incumbent.schedule is None else _GRACE
            until = min(until, time.monotonic() + grace)
        elif incumbent.proven and not clock.deterministic:
            until = min(until, time.monotonic() + _PROVEN)
        if time.monotonic() > until:
            if incumbent.schedule is None and not incumbent.impossible:
                at_last()
            incumbent.close()
            atexit.register(thread.join, _AT_EXIT)
            return
        if not ended:
            later()
    for failure in thread.failures:
        raise failure
