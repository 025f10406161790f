"""Random small problems with many ops of length zero and little memory, as documents."""

from __future__ import annotations

from random import Random
from typing import Any

from pipesat.files.problem_file import FORMAT

_MOST_OPS = 18  # F, B and W of all microbatches


def random_document(rng: Random, *, zeros: bool = True) -> dict[str, Any]:
    """Draw a problem: several chunks per device, one or two routes, all kinds of backwards.

    Capacities lie around what one or two microbatches need; some problems are infeasible.
    Without ``zeros`` every op takes time.
    """
    devices, count = rng.choice([(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (2, 3), (3, 4)])
    least = 0 if zeros else 1
    often = rng.choice([0.3, 0.6, 0.9]) if zeros else 0.0

    def time() -> int:
        return 0 if rng.random() < often else rng.randint(least, 3)

    stages = []
    for number in range(count):
        device = number if number < devices else rng.randrange(devices)
        stage: dict[str, Any] = {"device": device, "F": time(), "B": time(), "W": time()}
        stage["backward"] = rng.choice(["split", "split", "fused", "either"])
        if rng.random() < 0.4:
            stage["BW"] = rng.randint(least, stage["B"] + stage["W"] + 1)
        stage |= {"held_after_F": rng.randint(0, 4), "held_after_B": rng.randint(0, 6)}
        if rng.random() < 0.3:
            stage["held_in_backward"] = rng.randint(0, 8)
        stages.append(stage)
    rng.shuffle(stages)
    scale = rng.choice([1, 1, 1, 2, 3])
    for stage in stages:
        stage |= {key: scale * stage[key] for key in ("F", "B", "W", "BW") if key in stage}
    document: dict[str, Any] = {"format": FORMAT, "stages": stages}
    document["comm"] = {"default": scale * rng.choice([0, 0, 0, 1, 2])}
    _add_routes(rng, document)
    document["devices"] = [_device(rng, stages, d) for d in range(devices)]
    return document


def _add_routes(rng: Random, document: dict[str, Any]) -> None:
    count = len(document["stages"])
    most = max(1, min(3, _MOST_OPS // (3 * count)))
    if count == 1 or rng.random() < 0.6:
        document["microbatches"] = rng.randint(1, most)
        return
    cut = rng.randint(1, count - 1)
    forth, back = list(range(cut)), list(range(count - 1, cut - 1, -1))
    document["routes"] = [
        {"stages": stages, "microbatches": rng.randint(1, most)} for stages in (forth, back)
    ]


def _device(rng: Random, stages: list[dict[str, Any]], device: int) -> dict[str, Any]:
    own = [stage for stage in stages if stage["device"] == device]
    held = ("held_after_F", "held_after_B", "held_in_backward")
    most = sum(max(stage.get(key, 0) for key in held) for stage in own)
    static = rng.choice([0, 0, 1])
    if rng.random() < 0.2:
        return {"static": static}
    return {"memory": rng.randint(0, round(1.4 * most)) + static, "static": static}
