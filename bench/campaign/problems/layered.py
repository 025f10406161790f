"""Random layers files, small enough that every cut of them can be solved."""

from __future__ import annotations

from random import Random
from typing import Any


def layers(rng: Random, count: int) -> dict[str, Any]:
    """Return a layers document: a light first layer, a heavy last one at times, some flags."""
    found = [_layer(rng) for _ in range(count)]
    if rng.random() < 0.3:
        found[-1] |= {"F": rng.randint(4, 9), "B": rng.randint(2, 6), "last": True}
    if rng.random() < 0.3:
        found[0] |= {"F": 0, "B": rng.choice([0, 1]), "W": 0, "first": True}
        found[0].pop("BW", None)
    if count > 4 and rng.random() < 0.2:
        found[rng.randrange(count - 1)]["with_next"] = True
    document: dict[str, Any] = {"format": "pipesat.layers/1", "layers": found}
    if rng.random() < 0.3:
        document["reserve"] = rng.randint(0, 3)
    return document


def _layer(rng: Random) -> dict[str, Any]:
    F, B, W = rng.randint(1, 4), rng.randint(1, 4), rng.randint(0, 3)
    held, kept = rng.randint(0, 4), rng.randint(0, 2)
    found: dict[str, Any] = {"F": F, "B": B, "W": W, "held_after_F": held, "held_after_B": kept}
    found |= {"weights": rng.choice([0, 1, 5]), "output": rng.choice([0, 1, 4, 7])}
    if rng.random() < 0.3:
        found["BW"] = B + W + rng.choice([-1, 1])
    if rng.random() < 0.1:
        found["fused"] = True
    if rng.random() < 0.8:
        again = {"F": F, "B": B + F, "W": W, "BW": B + W + F, "held_after_F": min(held, 1)}
        found["recompute"] = again | {"held_after_B": kept}
    return found


def model(rng: Random, devices: int) -> dict[str, Any]:
    """Return a model as users have them: an embedding, blocks, a head; nothing recomputes.

    At times amounts are as large as those of real models, so that they are printed rounded.
    """
    unit = rng.choice([1, 1, 997])
    held, weights = rng.randint(1, 4) * unit, rng.randint(0, 4) * unit

    def layer(role: str, times: list[int], share: int = 1) -> dict[str, Any]:
        costs = dict(zip(("F", "B", "W"), times, strict=True))
        amounts = {"held_after_F": held * share, "weights": weights, "output": 1}
        return {"role": role} | costs | amounts

    times = [rng.randint(2, 9) for _ in range(3)]
    found = [layer("block", times) for _ in range(devices * rng.randint(1, 4) + rng.randint(0, 1))]
    if rng.random() < 0.3:  # blocks that differ
        for entry in found:
            entry |= {"F": rng.randint(1, 9), "B": rng.randint(1, 9)}
    if rng.random() < 0.6:
        found.insert(0, layer("embedding", [rng.randint(0, 2), 0, rng.randint(0, 2)], 0))
    if rng.random() < 0.6:
        found.append(layer("head", [rng.randint(1, 15) for _ in range(3)]))
    document: dict[str, Any] = {"format": "pipesat.layers/1", "layers": found}
    if rng.random() < 0.7:
        document |= {"time_unit": "ms", "memory_unit": "MiB"}
    return document
