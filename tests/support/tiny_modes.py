"""Random tiny problems with memory modes, and random orders of them, to hold against the oracle."""

from __future__ import annotations

from random import Random
from typing import Any

from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order


def tiny(chance: Random, *, zero: bool = False) -> dict[str, Any]:
    """A problem with one or two modes per stage; times of 0 only with ``zero``."""
    least = 0 if zero else 1
    devices = chance.choice([1, 1, 2, 2])
    stages = chance.choice([1, 2]) if devices == 1 else chance.choice([2, 2, 3, 4])
    home = [s % devices if chance.random() < 0.5 else min(s, devices - 1) for s in range(stages)]
    m = chance.choice([1, 2, 2, 3]) if stages <= 2 else chance.choice([1, 2])
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "microbatches": m,
        "devices": [
            {
                "memory": chance.choice([None, *range(2, 9)]),
                "static": chance.choice([0, 0, 1]),
                "copy_channels": chance.choice([1, 2]),
            }
            for _ in range(devices)
        ],
        "stages": [_stage(chance, device, least) for device in home],
        "mode_choice": chance.choice(["microbatch", "microbatch", "stage"]),
    }
    if chance.random() < 0.4:
        document["comm"] = {"default": chance.choice([1, 2])}
    return document


def tiny_chain(chance: Random) -> dict[str, Any]:
    """As :func:`tiny`, with one stage per device and a mode per microbatch."""
    stages = chance.choice([1, 1, 2])
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "microbatches": chance.choice([2, 3]) if stages == 1 else 2,
        "devices": [
            {"memory": chance.choice(range(2, 9)), "copy_channels": chance.choice([1, 2])}
            for _ in range(stages)
        ],
        "stages": [_stage(chance, device, 1) for device in range(stages)],
    }
    if chance.random() < 0.4:
        document["comm"] = {"default": chance.choice([1, 2])}
    return document


def _stage(chance: Random, device: int, least: int) -> dict[str, Any]:
    stage: dict[str, Any] = {
        "device": device,
        "F": chance.randint(least, 2),
        "B": chance.randint(least, 2),
        "W": chance.randint(least, 2),
        "held_after_F": chance.randint(0, 4),
        "held_after_B": chance.randint(0, 3),
        "backward": chance.choice(["split", "fused", "either"]),
    }
    if chance.random() < 0.3:
        stage["BW"] = chance.randint(least, 4)
    if chance.random() < 0.3:
        stage["held_in_backward"] = chance.randint(0, 4)
    modes: list[dict[str, Any]] = []
    if chance.random() < 0.6:
        held = chance.randint(0, stage["held_after_F"])
        times = {"out": chance.randint(least, 3), "in": chance.randint(least, 3)}
        modes.append({"name": "offload", "offload": times | {"held": held}})
    if chance.random() < 0.6:
        modes.append(
            {
                "name": "recompute",
                "backward": chance.choice(["fused", "fused", "either"]),
                "BW": chance.randint(max(least, 1), 5),
                "held_after_F": chance.randint(0, 1),
                "held_in_backward": chance.randint(0, 3),
            }
        )
    return stage | ({"modes": modes} if modes else {})


def random_order(problem: Problem, chance: Random) -> Order:
    """Modes and kinds at random, ops in an order that respects what waits for what."""
    modes = {}
    for stage in range(len(problem.stages)):
        one = chance.choice(problem.modes_of(stage))
        for m in range(problem.microbatches[stage]):
            other = chance.choice(problem.modes_of(stage))
            modes[stage, m] = one if problem.mode_choice == "stage" else other
    chains: list[list[Op]] = []
    for m in range(problem.microbatches[0]):
        forwards = [Op(s, "F", m, modes[s, m]) for s in range(len(problem.stages))]
        chain = list(forwards)
        for op in reversed(forwards):
            data = problem.amounts(op.stage, m, op.mode)
            fused = chance.random() < 0.5 if data.may_split and data.may_fuse else data.may_fuse
            chain += [op._replace(kind=k) for k in (["BW"] if fused else ["B", "W"])]  # type: ignore[arg-type]
        chains.append(chain)
    rows: list[list[Op]] = [[] for _ in problem.devices]
    while any(chains):
        op = chance.choice([chain for chain in chains if chain]).pop(0)
        rows[problem.stages[op.stage].device].append(op)
    return tuple(map(tuple, rows))
