"""Hand-written schedules, one published schedule per file.

``BASELINES`` maps the name that users type to the schedule: call it with a problem. It returns a
schedule timed as early as possible, whether or not it fits into memory (the checker tells), or
raises :class:`pipesat.errors.NotApplicable` with the reason.
"""

from __future__ import annotations

from typing import Final

from pipesat.heuristics.gpipe import gpipe
from pipesat.heuristics.list_scheduling import NAME as LIST_SCHEDULING
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.heuristics.one_f_one_b import one_f_one_b
from pipesat.heuristics.registry import Published
from pipesat.heuristics.zb_h1 import zb_h1

BASELINES: Final[dict[str, Published]] = {
    entry.name: entry
    for entry in (
        zb_h1,
        one_f_one_b,
        gpipe,
        list_scheduling,
    )
}
"""In the order in which a solve tries them: the usually best first, the portfolio last."""

__all__ = ["BASELINES", "LIST_SCHEDULING", "Published"]
