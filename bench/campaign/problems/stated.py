"""Small problems with statements that are perhaps not meant, planted or not."""

from __future__ import annotations

from random import Random
from typing import Any

PLACES = ("chain", "chunks", "modes", "classes", "no-memory", "forward")


def stated(rng: Random, family: str) -> dict[str, Any]:
    """Return a problem whose stages are planted with faults of statement, each with chance 1/3."""
    devices = rng.randint(1, 3)
    homes = [*range(devices)] * (2 if family == "chunks" else 1)
    stages = [_stage(rng, home) for home in homes]
    held = family != "no-memory" or rng.random() < 0.4
    for stage in stages:
        if not held:
            for key in [key for key in stage if key.startswith("held")]:
                del stage[key]
        if family == "modes" and held and rng.random() < 0.7:
            stage["modes"] = [_mode(rng, stage)]
        if family == "forward":
            stage.pop("BW", None)
            stage |= {"B": 0, "W": 0, "backward": "either"}
    if family == "forward" and rng.random() < 0.4:
        rng.choice(stages)["B"] = 1
    caps = [None if rng.random() < 0.4 else 1000 for _ in range(devices)]
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "microbatches": rng.randint(1, 3),
        "devices": [{} if cap is None else {"memory": cap} for cap in caps],
        "stages": stages,
    }
    if family == "classes":
        number = rng.randrange(len(stages))
        stage = stages[number]
        longer = {"BW": stage["B"] + stage["W"] + stage["F"]}  # right where all is fused
        own = _planted(rng, stage) if stage["backward"] == "either" else longer
        first = {"name": "other", "count": 1, "stages": {str(number): own}}
        document["microbatches"] = [first, {"name": "usual", "count": 2}]
    return document


def _stage(rng: Random, home: int) -> dict[str, Any]:
    F, B, W = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
    held = rng.randint(2, 5)
    kind = rng.choice(["either", "either", "fused", "split"])
    found: dict[str, Any] = {"device": home, "F": F, "B": B, "W": W, "backward": kind}
    found |= {"held_after_F": held}
    if kind == "split":
        return found | {"held_after_B": held + rng.randint(-1, 2)}
    if kind == "fused":  # its BW may be anything
        found |= {"BW": rng.choice([B + W, B + W + F])}
        return found | {"held_after_B": held + (rng.randint(1, 3) if rng.random() < 1 / 3 else 0)}
    return found | _planted(rng, found)


def _planted(rng: Random, stage: dict[str, Any]) -> dict[str, Any]:
    """A BW of a stage: as long as B and W, a little less, longer, or shorter than B."""
    B, W = stage["B"], stage["W"]
    right = rng.choice([B + W, max(B, B + W - 1), B])
    return {"BW": rng.choice([right, right, B + W + rng.randint(1, 5), rng.randint(0, B - 1)])}


def _mode(rng: Random, stage: dict[str, Any]) -> dict[str, Any]:
    """Recomputation, fused as it is meant, or in a way that W alone would avoid."""
    longer = {"BW": stage["B"] + stage["W"] + stage["F"], "held_after_F": 1, "held_after_B": 0}
    kind = {} if rng.random() < 0.3 else {"backward": "fused"}
    return {"name": "recompute"} | kind | longer
