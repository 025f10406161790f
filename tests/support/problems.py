"""Problems for tests: a short way to write one, and hypothesis strategies for random ones."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from pipesat.core.problem import Problem
from pipesat.files.problem_file import FORMAT, parse_problem


def chain(
    p: int,
    m: int,
    *,
    F: int = 1,
    B: int = 1,
    W: int = 1,
    cap: int | None = None,
    comm: int = 0,
    held: tuple[int, int] = (1, 1),
    **stage: Any,
) -> Problem:
    """A uniform chain of p stages, one per device, with m microbatches."""
    return parse_problem(
        {
            "format": FORMAT,
            "name": "chain",
            "microbatches": m,
            "devices": [{"memory": cap} for _ in range(p)],
            "stages": [
                {"device": d, "F": F, "B": B, "W": W}
                | {"held_after_F": held[0], "held_after_B": held[1]}
                | stage
                for d in range(p)
            ],
            "comm": {"default": comm},
        }
    )


def vee(p: int, m: int, *, cap: int | None = None, **stage: Any) -> Problem:
    """2p stages in a V on p devices: stage s on device min(s, 2p - 1 - s)."""
    costs = {"F": 1, "B": 1, "W": 1, "held_after_F": 1, "held_after_B": 1} | stage
    return parse_problem(
        {
            "format": FORMAT,
            "microbatches": m,
            "devices": [{"memory": cap} for _ in range(p)],
            "stages": [{"device": min(s, 2 * p - 1 - s)} | costs for s in range(2 * p)],
        }
    )


def document(problem: Problem, **changes: Any) -> dict[str, Any]:
    """A copy of a problem's document, which may be changed, with some keys replaced."""
    return dict(deepcopy(problem.document)) | changes


@st.composite
def problems(
    draw: st.DrawFn,
    max_devices: int = 3,
    max_stages: int = 4,
    max_microbatches: int = 3,
    least_time: int = 1,
) -> Problem:
    """Random small problems, feasible by construction: any placement, one or two routes.

    Capacities range from the least that one microbatch needs to ample; backwards may be split,
    fused or either; B may free memory or take some; delays and fused times vary.
    """
    devices = draw(st.integers(1, max_devices))
    count = draw(st.integers(1, max_stages))
    time = st.integers(least_time, 6)
    stages = []
    for _ in range(count):
        stage: dict[str, Any] = {"device": draw(st.integers(0, devices - 1))}
        stage |= {kind: draw(time) for kind in ("F", "B", "W")}
        stage["backward"] = draw(st.sampled_from(["split", "fused", "either"]))
        if draw(st.booleans()):
            stage["BW"] = draw(st.integers(max(stage["B"], least_time), stage["B"] + stage["W"]))
        stage["held_after_F"] = draw(st.integers(0, 4))
        stage["held_after_B"] = draw(st.integers(0, 6))
        stages.append(stage)
    doc: dict[str, Any] = {
        "format": FORMAT,
        "stages": stages,
        "devices": [{} for _ in range(devices)],
        "comm": {"default": draw(st.integers(0, 3))},
    }
    microbatches = st.integers(1, max_microbatches)
    if count > 1 and draw(st.booleans()):
        cut = draw(st.integers(1, count - 1))
        doc["routes"] = [
            {"stages": list(range(cut)), "microbatches": draw(microbatches)},
            {"stages": list(range(count - 1, cut - 1, -1)), "microbatches": draw(microbatches)},
        ]
    else:
        doc["microbatches"] = draw(microbatches)
    return _with_capacities(draw, doc)


def _with_capacities(draw: st.DrawFn, doc: dict[str, Any]) -> Problem:
    from pipesat.bounds.feasibility import capacities_by_order

    free = parse_problem(doc)
    static = draw(st.integers(0, 2))
    for need in capacities_by_order(free):
        room = need.capacity + draw(st.integers(0, 8))
        capacity = draw(st.sampled_from([None, room + static, room + static]))
        doc["devices"][need.device] = {"memory": capacity, "static": static}
    return parse_problem(doc)
