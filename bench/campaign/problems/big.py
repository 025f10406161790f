"""Times and amounts up to 10^12."""

from __future__ import annotations

from random import Random
from typing import Any

from campaign.problems import tiny

MOST = 10**12
TIMES = ("F", "B", "W", "BW", "default")
AMOUNTS = ("held_after_F", "held_after_B", "memory", "static")


def multiplied(value: Any, times: int, amounts: int = 1) -> Any:
    """Return a document with all times and all amounts multiplied."""
    if isinstance(value, list):
        return [multiplied(entry, times, amounts) for entry in value]
    if not isinstance(value, dict):
        return value
    factors = dict.fromkeys(TIMES, times) | dict.fromkeys(AMOUNTS, amounts)
    return {
        key: entry * factors[key]
        if key in factors and isinstance(entry, int)
        else multiplied(entry, times, amounts)
        for key, entry in value.items()
    }


def scaled(rng: Random) -> dict[str, Any]:
    """A tiny problem times a factor, so that its optimum is known."""
    document = rng.choice([tiny.chain, tiny.chunks, tiny.zero])(rng)
    return multiplied(document, 10 ** rng.randint(3, 10), 10 ** rng.randint(0, 9))


def huge(rng: Random) -> dict[str, Any]:
    """Times next to each other or far apart, near the limit of the format."""
    document = rng.choice([tiny.chain, tiny.chunks])(rng)
    top = 10 ** rng.randint(8, 12)
    for entry in document["stages"]:
        for kind in ("F", "B", "W", "BW"):
            if kind in entry:
                entry[kind] = rng.choice([top, top - 1, rng.randint(1, top), rng.randint(1, 9)])
    if "comm" in document:
        document["comm"] = {"default": rng.choice([0, 1, rng.randint(1, top)])}
    return document
