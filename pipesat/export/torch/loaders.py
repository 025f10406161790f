"""Which frameworks can load an order: they know placements by a schedule's name alone.

torchtitan and NeMo AutoModel both take any order from a CSV, but derive "which rank holds which
stage" from the schedule name beside it: a loop (rank r holds r, r + p, r + 2p, ...) or a V of
exactly two stages per rank (r and 2p - 1 - r), the latter only for ``ZBVZeroBubble``.
"""

from __future__ import annotations

from typing import NamedTuple

from pipesat.core.problem import Problem
from pipesat.placement.geometry import Geometry


class Loader(NamedTuple):
    """The schedule name that gives a problem's placement, or ``None`` and the reason why none."""

    schedule_name: str | None
    reason: str


def loader_for(problem: Problem) -> Loader:
    """Return the schedule name for torchtitan and NeMo AutoModel."""
    placement = tuple(problem.stages[stage].device for stage in problem.routes[0].stages)
    ranks, stages = len(problem.devices), len(placement)
    if placement == Geometry("loop", ranks, stages // ranks).homes:
        name = "PipelineScheduleSingle" if stages == ranks else "PipelineScheduleMulti"
        return Loader(name, "loop: rank r holds stages r, r + p, ...")
    if placement == Geometry("vee", ranks).homes:
        return Loader("ZBVZeroBubble", "V: rank r holds stages r and 2p - 1 - r")
    return Loader(
        None,
        "stages must lie in a loop (stage s on rank s mod p, equally many per rank) or in a V of "
        f"two stages per rank; here stage by stage they lie on ranks {_short(placement)}",
    )


def _short(placement: tuple[int, ...]) -> str:
    most = 16
    text = ", ".join(map(str, placement[:most]))
    return text + (", …" if len(placement) > most else "")
