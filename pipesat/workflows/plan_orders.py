"""The orders that a plan's search makes of a partition, and the columns of its comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from pipesat.core.errors import NotApplicable

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.core.schedule import Schedule
    from pipesat.heuristics.list_scheduling import Policy

_QUICK: Final = {"chain": ("zb-h1",), "vee": ("zb-v",), "loop": ("interleaved-zb",)}
_ALL: Final = {
    "chain": ("1f1b", "zb-auto"),
    "vee": ("v-half", "v-min", "dualpipev", "v-auto"),
    "loop": ("interleaved-1f1b", "gis", "gis-h"),
}
_FILLED: Final = 2  # settings of zb-auto
SOME_SETTINGS: Final = ", some settings"
"""Ends the source of a published schedule that is the best of fewer orders than it has."""


def quick_orders(problem: Problem, effort: int) -> Iterator[Schedule]:
    """Yield a few schedules of a problem, the cheap ones first; with effort 2, published ones too.

    Which ones: measured on layers like those in examples/, they come closest to the best of all.
    """
    from pipesat.core.timing import time_order
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.list_scheduling import list_schedules
    from pipesat.heuristics.zb_auto import filled_orders
    from pipesat.placement.geometry import one_route_placement_of

    kind = one_route_placement_of(problem)
    for name in _QUICK[kind] if effort == 1 else _ALL[kind]:
        with contextlib.suppress(NotApplicable):
            yield BASELINES[name](problem)
    if effort > 1:
        return
    if kind == "chain":
        with contextlib.suppress(NotApplicable):
            for _, filled in zip(range(_FILLED), filled_orders(problem), strict=False):
                yield time_order(problem, filled.order, source=f"zb-auto{SOME_SETTINGS}")
    yield from list_schedules(problem, chosen=_policies(kind))


def _policies(kind: str) -> list[Policy]:
    from pipesat.heuristics.list_scheduling import Policy

    if kind == "chain":
        return [Policy()]
    return [Policy(0.25), Policy(1.0, pace=1.5), Policy(0.25, pace=1.25)]


def columns() -> dict[str, Callable[[Problem], Schedule]]:
    """What stands beside the best order found: 1F1B and ZB-H1, or what is like them elsewhere."""
    return {
        "1F1B": partial(_of, {"loop": "interleaved-1f1b"}, "1f1b"),
        "ZB-H1": partial(_of, {"loop": "interleaved-zb", "vee": "zb-v"}, "zb-h1"),
    }


def _of(elsewhere: dict[str, str], usual: str, problem: Problem) -> Schedule:
    from pipesat.heuristics import BASELINES
    from pipesat.placement.geometry import one_route_placement_of

    return BASELINES[elsewhere.get(one_route_placement_of(problem), usual)](problem)
