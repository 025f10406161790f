"""Which hand-written schedules are tried: on candidates of a search, and for the tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from pipesat.core.errors import NotApplicable
from pipesat.core.settings import OneRoutePlacement
from pipesat.heuristics import BASELINES
from pipesat.heuristics.list_scheduling import Policy, list_schedules
from pipesat.heuristics.registry import GiveUp
from pipesat.heuristics.zb_auto import filled_orders
from pipesat.problem.geometry import one_route_placement_of
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.timing import time_codes

_QUICK: Final = {"chain": ("zb-h1",), "vee": ("zb-v",), "loop": ("interleaved-zb",)}
_ALL: Final = {
    "chain": ("1f1b", "zb-auto"),
    "vee": ("v-half", "v-min", "dualpipev", "v-auto"),
    "loop": ("interleaved-1f1b", "gis", "gis-h"),
}
_PAIRED: Final = {
    "chain": ("1f1b-overlapped",),
    "vee": ("dualpipev",),
    "loop": ("interleaved-overlapped",),
}
_FILLED: Final = 2  # settings of zb-auto
SOME_SETTINGS: Final = ", some settings"
"""Ends the source of a published schedule that is the best of fewer orders than it has."""
_POLICIES: Final = [Policy(0.25), Policy(1.0, pace=1.5), Policy(0.25, pace=1.25)]
SCHEDULES: Final[dict[OneRoutePlacement, tuple[str, ...]]] = {
    "chain": ("1f1b", "zb-h1"),
    "loop": ("interleaved-1f1b", "interleaved-zb"),
    "vee": ("zb-v", "dualpipev"),
}
"""Hand-written schedules that users know, by placement, the plainest first."""
KNOWN: Final = {"1f1b": "1F1B", "interleaved-1f1b": "interleaved 1F1B"}
"""What most of them run today: a gain is stated over the best setting of each."""


def quick_orders(problem: Problem, effort: int, over: GiveUp) -> Iterator[Schedule]:
    """Yield a few schedules of a problem, the cheap ones first; with effort 2, published ones too.

    Which ones: measured on layers like those in examples/, they come closest to the best of all.
    Slow ones ask whether time is ``over``.
    """
    kind = one_route_placement_of(problem)
    paired = _PAIRED[kind] if problem.overlap is not None else ()
    for name in (*_QUICK[kind], *paired) if effort == 1 else _ALL[kind]:
        with contextlib.suppress(NotApplicable):
            yield BASELINES[name](problem, over)
    if effort > 1:
        return
    if kind == "chain":
        with contextlib.suppress(NotApplicable):
            for _, filled in zip(range(_FILLED), filled_orders(problem), strict=False):
                yield time_codes(problem, filled.order, source=f"zb-auto{SOME_SETTINGS}")
    yield from list_schedules(problem, chosen=[Policy()] if kind == "chain" else _POLICIES)


COLUMNS: Final[dict[str, dict[OneRoutePlacement, str]]] = {
    "1F1B": {"chain": "1f1b", "vee": "1f1b", "loop": "interleaved-1f1b"},
    "ZB-H1": {"chain": "zb-h1", "vee": "zb-v", "loop": "interleaved-zb"},
}
"""What stands beside the best order found: 1F1B and ZB-H1, or what is like them elsewhere."""
