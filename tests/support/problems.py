"""Problems for tests: short ways to write one, and hypothesis strategies for random ones."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from tests.oracle.generator import of_family


def placed(homes: Sequence[int], m: int | Sequence[int], **more: Any) -> Problem:
    """Stages that are alike on these devices; with two numbers of microbatches, in two routes.

    ``cap`` is the capacity of every device, ``comm`` the delay of every hop, ``overlap`` the factor
    of F and BW, ``held`` what is held after F and after B; the rest belongs to every stage.
    """
    held = more.pop("held", (1, 1))
    costs = {"F": 1, "B": 1, "W": 1, "held_after_F": held[0], "held_after_B": held[1]}
    devices = [{"memory": more.pop("cap", None)}] * (max(homes) + 1)
    doc: dict[str, Any] = {"format": FORMAT, "comm": {"default": more.pop("comm", 0)}}
    if overlap := more.pop("overlap", None):
        doc["overlap"] = {"FB": [*overlap]}
    doc |= {"devices": devices, "stages": [{"device": home} | costs | more for home in homes]}
    if isinstance(m, int):
        return parse_problem(doc | {"microbatches": m})
    p = len(homes) // 2
    parts = [*range(p)], [*range(p, 2 * p)]
    routes = [{"stages": s, "microbatches": n} for s, n in zip(parts, m, strict=True)]
    return parse_problem(doc | {"routes": routes})


def chain(p: int, m: int, **more: Any) -> Problem:
    """A uniform chain of p stages, one per device, with m microbatches."""
    return placed(range(p), m, **more)


def vee(p: int, m: int, **more: Any) -> Problem:
    """2p stages in a V on p devices: stage s on device min(s, 2p - 1 - s)."""
    return placed([*range(p), *reversed(range(p))], m, **more)


def loop(p: int, v: int, m: int, **more: Any) -> Problem:
    """A loop: p v stages, stage s on device s mod p."""
    return placed([s % p for s in range(p * v)], m, **more)


def two_routes(p: int, microbatches: tuple[int, int], **more: Any) -> Problem:
    """Two chains: stage d of route 0 and stage 2p - 1 - d of route 1 on rank d."""
    return placed([*range(p), *reversed(range(p))], microbatches, **more)


def tessel(shape: str, p: int) -> Problem:
    """Tessel's V (one chain) and X (two chains in opposite directions): F = 1, BW = 3, cap p."""
    costs = {"W": 2, "BW": 3, "held": (1, 0), "backward": "fused", "cap": p}
    return chain(p, 2 * p, **costs) if shape == "V" else two_routes(p, (2 * p, 2 * p), **costs)


def document(problem: Problem, **changes: Any) -> dict[str, Any]:
    """A copy of a problem's document, which may be changed, with some keys replaced."""
    return dict(deepcopy(problem.document)) | changes


def with_microbatches(problem: Problem, m: int) -> Problem:
    """The same pipeline with m microbatches on every route."""
    if "routes" not in problem.document:
        return parse_problem(document(problem, microbatches=m))
    routes = [dict(route) | {"microbatches": m} for route in problem.document["routes"]]
    return parse_problem(document(problem, routes=routes))


def of(family: str, seed: object, **more: Any) -> Problem:
    """A problem of a family of the oracle's generator."""
    return parse_problem(of_family(family, seed, **more))


def problems(
    max_devices: int = 3,
    max_stages: int = 4,
    max_microbatches: int = 3,
    least_time: int = 1,
    **more: Any,
) -> st.SearchStrategy[Problem]:
    """Random small problems, feasible by construction: any placement, one or two routes.

    Capacities range from the least that one microbatch needs to ample; backwards may be split,
    fused or either; B may free memory or take some; delays and fused times vary.
    """
    flags = {"devices": (1, max_devices), "stages": max_stages, "zeros": (0.0, 0.3)} | more
    flags |= {"zeros": (0.0,)} if least_time else {}
    flags |= {"microbatches": (1, max_microbatches), "ops": 3 * max_stages * max_microbatches}
    return st.integers(0, 1 << 20).map(lambda seed: of("plain", seed, **flags))


def vees(max_devices: int = 12, max_microbatches: int = 30) -> st.SearchStrategy[Problem]:
    """Uneven stages in a V, any capacities and delays."""
    more: dict[str, Any] = {"shapes": ("V",), "memory": ("none", "any", "enough")}
    more |= {"pairs": ("", "FB"), "delays": (0, 1, 4)}
    return problems(max_devices, 2 * max_devices, max_microbatches, 0, **more)
