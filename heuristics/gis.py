"""GIS, the generalised interleaved schedule (Wan et al., "PipeOffload", 2025)."""

from __future__ import annotations

from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics.interleaved import interleaved
from pipesat.heuristics.registry import published

_SOURCE = "Wan et al., PipeOffload, 2025"


@published("gis", placement="loop", source=_SOURCE)
def gis(problem: Problem) -> Schedule:
    """Interleaved 1F1B with a warm-up as short as 1F1B's: ``(v - 1) p + p - 1 - d`` forwards.

    With p dividing m, rank 0 holds ``p v`` chunk activations, 1F1B's memory, and without delays the
    bubble is that of interleaved 1F1B, whose longer warm-up hides delays.

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more.
    """
    return interleaved(problem, len(problem.devices), per_hop=1, source="gis")


@published("gis-h", placement="loop", source=_SOURCE)
def gis_h(problem: Problem) -> Schedule:
    """GIS in groups of ``g = ceil(p / 2)``, its smallest: rank 0 holds ``g (v - 1) + p`` chunks.

    With g dividing m and no delays, the bubble is ``(p - g)(v - 1)`` chunk times (F + BW) longer
    than interleaved 1F1B's where ``(p - g) max(F, BW) <= g min(F, BW)``: where F and BW take the
    same time, if ``g = p / 2`` exactly.

    Raises
    ------
    NotApplicable
        Unless the stages of one route go round the devices twice or more; or if the last group is
        so small that the ranks wait for each other.
    """
    half = (len(problem.devices) + 1) // 2
    return interleaved(problem, half, per_hop=1, source="gis-h")
