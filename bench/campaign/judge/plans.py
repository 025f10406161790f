"""The best of all ways to cut layers into stages, place them and recompute: all of them, solved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import ceil
from typing import Any

from campaign.judge.bounds import lower_bound
from campaign.judge.exact import Truth, exact
from campaign.judge.reading import pipe_of

KINDS = ("F", "B", "W", "BW", "held_after_F", "held_after_B")


@dataclass(frozen=True)
class Question:
    """What ``plan`` is asked."""

    layers: list[dict[str, Any]]
    devices: int
    microbatches: int
    memory: list[int | None]
    shapes: tuple[str, ...]
    recompute: str
    latency: int = 0
    bandwidth: Fraction | None = None
    reserve: int = 0


@dataclass(frozen=True)
class Way:
    """One cut in one shape; ``parts`` are (begin, end) per stage, ``flags`` who recomputes."""

    homes: tuple[int, ...]
    parts: tuple[tuple[int, int], ...]
    flags: tuple[bool, ...]


def homes_of(shape: str, devices: int) -> tuple[int, ...]:
    there = tuple(range(devices))
    return {"chain": there, "vee": there + there[::-1], "loop": there * 2}[shape]


def ways(question: Question) -> Iterator[Way]:
    """Every way that the flags of layers and the choice of recomputation allow."""
    count = len(question.layers)
    for shape in question.shapes:
        homes = homes_of(shape, question.devices)
        for cuts in combinations(range(1, count), len(homes) - 1):
            parts = tuple(pairwise((0, *cuts, count)))
            if not _allowed(question, parts):
                continue
            for flags in _flags(question, homes, parts):
                yield Way(homes, parts, flags)


def _allowed(question: Question, parts: tuple[tuple[int, int], ...]) -> bool:
    for begin, end in parts:
        for k in range(begin, end):
            layer = question.layers[k]
            if layer.get("first") and begin != 0:
                return False
            if layer.get("last") and end != len(question.layers):
                return False
            if layer.get("with_next") and k + 1 == end:
                return False
    return True


def _flags(
    question: Question, homes: tuple[int, ...], parts: tuple[tuple[int, int], ...]
) -> Iterator[tuple[bool, ...]]:
    """Choices of recomputation; a stage without a variant has none.

    ``where-needed`` on a chain: the stages that 1F1B would not fit on.
    """
    if question.recompute == "choose":
        has = [any("recompute" in question.layers[k] for k in range(*part)) for part in parts]
        yield from product(*((False, True) if one else (False,) for one in has))
    elif question.recompute == "never" or len(homes) > question.devices:
        yield (False,) * len(parts)
    else:
        found = []
        for stage, part in enumerate(parts):
            plain, again = (_sum(question, part, "held_after_F", flag) for flag in (False, True))
            flying = min(question.microbatches, question.devices - stage)
            capacity = question.memory[stage]
            static = question.reserve + _sum(question, part, "weights", False)
            over = capacity is not None and static + flying * plain > capacity
            found.append(over and again < plain)
        yield tuple(found)


def amount(layer: dict[str, Any], kind: str, again: bool) -> int:
    costs = layer["recompute"] if again and "recompute" in layer and kind in KINDS else layer
    if kind == "BW" and "BW" not in costs:
        return int(costs["B"] + costs["W"])
    return int(costs.get(kind, 0))


def _sum(question: Question, part: tuple[int, int], kind: str, again: bool) -> int:
    return sum(amount(question.layers[k], kind, again) for k in range(*part))


def problem_of(question: Question, way: Way) -> dict[str, Any]:
    """Return the problem that a way is."""
    static = [question.reserve] * question.devices
    stages, edges = [], []
    for number, (part, home, again) in enumerate(zip(way.parts, way.homes, way.flags, strict=True)):
        static[home] += _sum(question, part, "weights", False)
        entry: dict[str, Any] = {"device": home}
        entry |= {kind: _sum(question, part, kind, again) for kind in KINDS}
        if any(question.layers[k].get("fused") for k in range(*part)):
            entry["backward"] = "fused"
        stages.append(entry)
        if number + 1 < len(way.parts):
            size = question.layers[part[1] - 1].get("output", 0)
            rate = question.bandwidth
            delay = question.latency + (0 if rate is None else ceil(Fraction(size) / rate))
            edges.append({"src": number, "dst": number + 1, "F": delay, "B": delay})
    devices = [
        ({} if capacity is None else {"memory": capacity}) | {"static": taken}
        for capacity, taken in zip(question.memory, static, strict=True)
    ]
    return {
        "format": "pipesat.problem/1",
        "microbatches": question.microbatches,
        "devices": devices,
        "stages": stages,
        "comm": {"edges": edges},
    }


def best_plan(question: Question, objective: str, seconds: float) -> Truth:
    """Bracket the best value over all ways; exact, if there was time for all."""
    until = time.monotonic() + seconds
    pipes = [pipe_of(problem_of(question, way)) for way in ways(question)]
    ranked = sorted(((lower_bound(pipe, objective), n) for n, pipe in enumerate(pipes)))
    lower: int | None = None
    upper: int | None = None
    unknown = False
    for floor, number in ranked:
        if upper is not None and floor >= upper:
            lower = upper if lower is None else min(lower, upper)
            break
        if time.monotonic() > until:
            lower = floor if lower is None else min(lower, floor)
            unknown = True
            break
        truth = exact(pipes[number], objective, 2.0)
        if truth.feasible is False:
            continue
        unknown |= truth.feasible is None
        lower = truth.lower if lower is None else min(lower, truth.lower)
        if truth.upper is not None:
            upper = truth.upper if upper is None else min(upper, truth.upper)
    feasible = True if upper is not None else None if unknown else False
    return Truth(0 if lower is None else lower, upper, feasible)
