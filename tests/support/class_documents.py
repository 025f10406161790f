"""Small random problem documents whose microbatches differ."""

from __future__ import annotations

import random
from typing import Any


def random_document(seed: int) -> dict[str, Any]:
    """One route on one or two devices; two microbatches, or three that are fused."""
    draw = random.Random(seed)
    devices, stages = draw.choice([(1, 1), (2, 2), (2, 2)])
    fused = draw.random() < 0.4
    number = draw.randint

    def factor() -> list[int]:
        return [number(1, 5), number(1, 3)]

    classes = []
    for name in "abc"[: 3 if fused else 2]:
        one: dict[str, Any] = {"name": name, "count": 1}
        one |= {key: factor() for key in ("time", "held", "comm") if draw.random() < 0.7}
        if draw.random() < 0.3:
            one["stages"] = {str(draw.randrange(stages)): {"F": number(1, 9), "held_after_F": 1}}
        classes.append(one)
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "devices": [{} for _ in range(devices)],
        "stages": [
            {
                "device": s % devices,
                "F": number(1, 6),
                "B": number(1, 6),
                "W": number(1, 4),
                "held_after_F": number(0, 4),
                "held_after_B": number(0, 4),
                "backward": "fused" if fused else draw.choice(["split", "either"]),
            }
            for s in range(stages)
        ],
        "microbatches": classes,
        "order": draw.choice(["given", "same", "free"]),
        "comm": {"default": number(0, 3)},
    }
    for stage in document["stages"]:
        if draw.random() < 0.3:
            stage["BW"] = number(1, 9)
        if draw.random() < 0.3:
            stage["held_in_backward"] = number(0, 8)
    for device in document["devices"]:
        if draw.random() < 0.6:
            device["memory"] = number(4, 24)
    return document
