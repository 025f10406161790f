"""Random problems on the placements of hand-written schedules: a V, or two opposite routes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pipesat.core.problem import Problem
from pipesat.files.problem_file import FORMAT, parse_problem


def two_routes(
    p: int, microbatches: tuple[int, int], *, overlap: tuple[int, int] | None = None, **stage: int
) -> Problem:
    """Two uniform chains: stage d of route 0 and stage 2p - 1 - d of route 1 on rank d."""
    costs = {"F": 1, "B": 1, "W": 1, "held_after_F": 1, "held_after_B": 1} | stage
    doc: dict[str, Any] = _placed(p, [dict(costs) for _ in range(2 * p)])
    doc["routes"] = _routes(p, microbatches)
    if overlap is not None:
        doc["overlap"] = {"FB": list(overlap)}
    return parse_problem(doc)


@st.composite
def vees(draw: st.DrawFn, max_devices: int = 12, max_microbatches: int = 30) -> Problem:
    """Uneven stages in a V, devices numbered in any order, any capacities and delays."""
    doc = _uneven(draw, max_devices)
    return parse_problem(doc | {"microbatches": draw(st.integers(1, max_microbatches))})


def _uneven(draw: st.DrawFn, max_devices: int) -> dict[str, Any]:
    p = draw(st.integers(1, max_devices))
    time, amount = st.integers(0, 9), st.integers(0, 5)
    allowed = draw(st.sampled_from([["either"], ["split", "fused", "either"], ["fused"]]))
    stages: list[dict[str, Any]] = [
        {
            "F": draw(time),
            "B": draw(time),
            "W": draw(time),
            "held_after_F": draw(amount),
            "held_after_B": draw(amount),
            "backward": draw(st.sampled_from(allowed)),
        }
        for _ in range(2 * p)
    ]
    doc = _placed(p, stages, draw(st.permutations(range(p))))
    doc["comm"] = {"default": draw(st.integers(0, 4))}
    doc["devices"] = [{"memory": draw(st.sampled_from([None, 0, 3, 20]))} for _ in range(p)]
    if draw(st.booleans()):
        doc["overlap"] = {"FB": [4, 5]}
    return doc


def _placed(
    p: int, stages: list[dict[str, Any]], device: list[int] | range | None = None
) -> dict[str, Any]:
    home = device or range(p)
    for number, stage in enumerate(stages):
        stage["device"] = home[min(number, 2 * p - 1 - number)]
    return {"format": FORMAT, "devices": [{} for _ in range(p)], "stages": stages}


def _routes(p: int, microbatches: tuple[int, int]) -> list[dict[str, Any]]:
    first, second = microbatches
    return [
        {"stages": list(range(p)), "microbatches": first},
        {"stages": list(range(p, 2 * p)), "microbatches": second},
    ]
