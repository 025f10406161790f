"""Can any schedule fit into memory? Decided by arithmetic, with the reason.

One microbatch alone, on a device that holds the chunks s1 < s2 < ... of its route, needs
``max over s of (sum of held_after_F up to s + excess of s)``, the excess being
``max(0, held_after_B - held_after_F)`` where the backward must be split, else 0.
No schedule avoids that, and running one microbatch after the other attains it; so a problem is
feasible exactly if every device has room for its neediest route.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipesat.errors import Infeasible
from pipesat.problem import Problem
from pipesat.rules import round_trip


class Holding(NamedTuple):
    """What one microbatch holds on one chunk: after F, and what its backward takes on top."""

    activation: int
    excess: int


class Need(NamedTuple):
    """Least capacity of a device (static part included) and the stages that make it so."""

    device: int
    capacity: int
    stages: tuple[int, ...]


def holdings(problem: Problem) -> list[Holding]:
    """Holding of one microbatch on each stage."""
    return [
        Holding(s.held_after_F, 0 if s.may_fuse else max(0, s.held_after_B - s.held_after_F))
        for s in problem.stages
    ]


def certain_holdings(problem: Problem) -> list[Holding]:
    """Holdings that no schedule can make vanish: the ones to prove bounds from.

    An interval of length zero holds nothing, so where F, everything after it and the backward
    take no time at all, a schedule may run them in one instant and hold nothing.
    """
    result = []
    for number, (stage, holding) in enumerate(zip(problem.stages, holdings(problem), strict=True)):
        activation, excess = holding
        if stage.F == stage.shortest_backward == round_trip(problem, number) == 0:
            activation = 0
            excess = 0 if stage.may_fuse else stage.held_after_B
        if stage.B == stage.W == 0:
            excess = 0
        result.append(Holding(activation, excess))
    return result


def further_need(chunks: Sequence[Holding], up: int, down: int) -> int:
    """Most memory that a microbatch will yet take on a device beyond what it holds there.

    ``chunks`` are its holdings on the device's chunks in route order; it has run the forwards of
    the first ``up`` of them and has the backwards of the first ``down`` still to come.
    """
    most = held = 0
    for activation, excess in chunks[:down]:
        held += activation
        most = max(most, held + excess)
    return max(0, most - sum(chunk.activation for chunk in chunks[: min(up, down)]))


def chunks_by_route(problem: Problem) -> list[dict[int, tuple[int, ...]]]:
    """Per device and route, the device's stages of that route in route order."""
    chunks: list[dict[int, list[int]]] = [{} for _ in problem.devices]
    for number, route in enumerate(problem.routes):
        for stage in route.stages:
            chunks[problem.stages[stage].device].setdefault(number, []).append(stage)
    return [{route: tuple(stages) for route, stages in per.items()} for per in chunks]


def smallest_capacities(problem: Problem, *, certain: bool = False) -> list[Need]:
    """Smallest capacity of every device with which a schedule exists."""
    held = certain_holdings(problem) if certain else holdings(problem)
    needs = []
    for device, per_route in enumerate(chunks_by_route(problem)):
        options = [
            (further_need([held[s] for s in stages], 0, len(stages)), stages)
            for stages in per_route.values()
        ]
        most, stages = max(options, key=lambda option: option[0], default=(0, ()))
        needs.append(Need(device, problem.devices[device].static + most, stages))
    return needs


def preflight(problem: Problem) -> None:
    """Pass if a schedule exists.

    Raises
    ------
    Infeasible
        Naming every device that is too small: its need, its capacity, the stages responsible.
    """
    short = [
        need
        for need in smallest_capacities(problem, certain=True)
        if (memory := problem.devices[need.device].memory) is not None and need.capacity > memory
    ]
    if not short:
        return
    unit = f" {problem.memory_unit}" if problem.memory_unit else ""
    sentences = []
    for device, capacity, stages in short:
        data = problem.devices[device]
        which = (
            f"stage {stages[0]}" if len(stages) == 1 else f"stages {', '.join(map(str, stages))}"
        )
        reason = f"its static {data.static}" + (
            f" and one microbatch's {capacity - data.static} on {which}" if stages else ""
        )
        sentences.append(
            f"{problem.device_name(device)} has a capacity of {data.memory}{unit} but needs "
            f"{capacity}{unit} ({reason}); the smallest capacity that works is {capacity}"
        )
    raise Infeasible("; ".join(sentences))
