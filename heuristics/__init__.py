"""Hand-written schedules, one published schedule per file.

``BASELINES`` maps the name that users type to the function that builds the schedule. Each returns
a schedule timed as early as possible, whether or not it fits into memory (the checker tells), or
raises :class:`pipesat.errors.NotApplicable` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pipesat.heuristics.gpipe import gpipe
from pipesat.heuristics.list_scheduling import NAME as LIST_SCHEDULING
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.heuristics.one_f_one_b import one_f_one_b
from pipesat.heuristics.zb_h1 import zb_h1
from pipesat.problem import Problem
from pipesat.schedule import Schedule

Heuristic: TypeAlias = Callable[[Problem], Schedule]

BASELINES: Final[dict[str, Heuristic]] = {
    "zb-h1": zb_h1,
    "1f1b": one_f_one_b,
    "gpipe": gpipe,
    LIST_SCHEDULING: list_scheduling,
}
