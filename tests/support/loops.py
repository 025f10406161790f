"""Problems on chains and loops: uniform ones, and hypothesis strategies for uneven ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pipesat.core.problem import Problem
from pipesat.files.problem_file import FORMAT, parse_problem

_MOST_PASSES = 300  # of all stages and microbatches: an example takes milliseconds


def loop(
    p: int,
    v: int,
    m: int,
    *,
    F: int = 1,
    B: int = 1,
    W: int = 1,
    comm: int = 0,
    overlap: tuple[int, int] | None = None,
    **stage: Any,
) -> Problem:
    """A uniform loop: p v stages, stage s on device s mod p; every chunk holds one unit."""
    costs = {"F": F, "B": B, "W": W, "held_after_F": 1, "held_after_B": 1} | stage
    doc: dict[str, Any] = {
        "format": FORMAT,
        "microbatches": m,
        "devices": [{} for _ in range(p)],
        "stages": [{"device": s % p} | costs for s in range(p * v)],
        "comm": {"default": comm},
    }
    if overlap is not None:
        doc["overlap"] = {"FB": list(overlap)}
    return parse_problem(doc)


@st.composite
def uneven_loops(draw: st.DrawFn, least_chunks: int, most_chunks: int) -> Problem:
    """Loops of up to 12 devices in any order, no two stages alike, with or without pairs.

    Ops may take no time, backwards be split, fused or either, capacities be too small.
    """
    p = draw(st.integers(1, 12))
    v = draw(st.integers(least_chunks, most_chunks))
    m = draw(st.integers(1, max(1, min(3 * p + 2, _MOST_PASSES // (p * v)))))
    home = draw(st.permutations(range(p)))
    time = st.integers(0, 5)
    stages = []
    for s in range(p * v):
        stage: dict[str, Any] = {"device": home[s % p]}
        stage |= {kind: draw(time) for kind in ("F", "B", "W")}
        stage["BW"] = draw(st.integers(0, stage["B"] + stage["W"]))
        stage["backward"] = draw(st.sampled_from(["split", "fused", "either"]))
        stage |= {"held_after_F": draw(st.integers(0, 3)), "held_after_B": draw(st.integers(0, 4))}
        stages.append(stage)
    doc: dict[str, Any] = {
        "format": FORMAT,
        "microbatches": m,
        "devices": [{"memory": draw(st.sampled_from([None, 2 * p * v]))} for _ in range(p)],
        "stages": stages,
        "comm": {"default": draw(st.integers(0, 3))},
    }
    if draw(st.booleans()):
        doc["overlap"] = {"FB": draw(st.sampled_from([[1, 2], [3, 4], [1, 1]]))}
    return parse_problem(doc)
