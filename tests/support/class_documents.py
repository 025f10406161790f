"""Small random problem documents whose microbatches differ."""

from __future__ import annotations

import random
from collections.abc import Callable
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


def chunked_document(seed: int) -> dict[str, Any]:
    """One route with two or three stages, several on a device; two to four microbatches.

    Up to three classes, some with several microbatches, and some of them in turn.
    """
    draw = random.Random(seed)
    number = draw.randint
    homes = draw.choice([(0, 0), (0, 1), (0, 1, 0), (0, 1, 1)])
    rule = draw.choice(["given", "same", "free"])
    names = draw.choice(["aab", "aba", "abb", "abc"])
    if len(homes) == 3:
        names = "ab" if rule == "free" else names
    elif rule == "given":
        names = draw.choice(["aabb", "abab", "abca", names])

    entries = _entries(names, lambda _: _some_factors(draw))
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "devices": [{} for _ in range(max(homes) + 1)],
        "stages": [
            {
                "device": home,
                "F": number(1, 6),
                "B": number(1, 6),
                "W": number(1, 4),
                "held_after_F": number(0, 4),
                "backward": "fused",
            }
            for home in homes
        ],
        "microbatches": entries,
        "order": rule,
        "comm": {"default": number(0, 3)},
    }
    for device in document["devices"]:
        if draw.random() < 0.6:
            device["memory"] = number(6, 24)
    return document


def paired_document(seed: int) -> dict[str, Any]:
    """Two to four microbatches of two or three classes, whose F's and BW's may run as pairs.

    One to three stages, also two on a device.
    """
    draw = random.Random(seed)
    number = draw.randint
    homes, names, fused = draw.choice(
        [
            ((0,), "abca", True),
            ((0,), "aba", False),
            ((0, 0), "aab", True),
            ((0, 0), "ab", False),
            ((0, 1), "abca", True),
            ((0, 1), "abc", True),
            ((0, 1), "ab", False),
            ((0, 1, 0), "ab", True),
            ((0, 1, 2), "ab", True),
        ]
    )
    rule = draw.choice(["given", "same", "free"])
    if rule == "free" and len(homes) > 1:
        names = names[:3]  # of more, the oracle takes minutes

    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "devices": [{} for _ in range(max(homes) + 1)],
        "stages": [
            {
                "device": home,
                "F": number(1, 6),
                "B": number(1, 6),
                "W": number(1, 4),
                "BW": number(2, 10),
                "held_after_F": number(0, 4),
                "held_after_B": 0 if fused else number(0, 5),
                "backward": "fused" if fused else "either",
            }
            for home in homes
        ],
        "microbatches": _entries(names, lambda _: _some_factors(draw)),
        "order": rule,
        "comm": {"default": number(0, 3)},
        "overlap": {"FB": draw.choice([[1, 2], [2, 3], [3, 4], [9, 10]])},
    }
    for device in document["devices"]:
        if draw.random() < 0.5:
            device["memory"] = number(8, 26)
    return document


def tight_chain_document(seed: int) -> dict[str, Any]:
    """A chain whose stages keep one order of the microbatches, one far larger than the others.

    Two or three devices with one stage each, most of them with memory for few microbatches.
    """
    draw = random.Random(seed)
    number = draw.randint
    devices = draw.choice([2, 2, 3])
    fused = devices == 3 or draw.random() < 0.6
    names = draw.choice(["abab", "aaba", "abc", "baa"] if fused else ["aba", "ab"])
    large, held = number(2, 5), number(1, 4)
    factors = {"a": [1, 1], "b": [large, 1], "c": [number(1, 3), number(1, 2)]}
    entries = _entries(names, lambda name: {"time": factors[name], "held": factors[name]})
    stages = [
        {
            "device": device,
            "F": number(1, 4),
            "B": number(1, 4),
            "W": number(1, 3),
            "held_after_F": held,
            "held_after_B": 0 if fused else number(0, held),
            "backward": "fused" if fused else draw.choice(["split", "either"]),
        }
        for device in range(devices)
    ]
    return {
        "format": "pipesat.problem/1",
        "devices": [
            {"memory": held * (large + number(0, 2 + devices))} if draw.random() < 0.8 else {}
            for _ in range(devices)
        ],
        "stages": stages,
        "microbatches": entries,
        "order": draw.choice(["given", "same"]),
        "comm": {"default": number(0, 4)},
    }


def _some_factors(draw: random.Random) -> dict[str, list[int]]:
    keys = ("time", "held", "comm")
    return {key: [draw.randint(1, 5), draw.randint(1, 3)] for key in keys if draw.random() < 0.7}


def _entries(names: str, factors: Callable[[str], dict[str, list[int]]]) -> list[dict[str, Any]]:
    """One microbatch per letter; a class has its factors where it is first named."""
    first = {name: number for number, name in reversed(list(enumerate(names)))}
    return [
        {"name": name, "count": 1} | (factors(name) if first[name] == number else {})
        for number, name in enumerate(names)
    ]
