"""Random problems by family: small ones, whose optimum the oracle finds, and larger ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.oracle.generator import FAMILIES, drawn, of_family
from tests.oracle.reading import Document

MOST = 10**12
TIMES = ("F", "B", "W", "BW", "default")
AMOUNTS = ("held_after_F", "held_after_B", "held_in_backward", "memory", "static")


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


def scaled(rng: Random) -> Document:
    """A small problem times a factor, so that its optimum is known."""
    document = of_family(rng.choice(["plain", "zeros"]), rng.getrandbits(32))
    return multiplied(document, 10 ** rng.randint(3, 10), 10 ** rng.randint(0, 9))


def huge(rng: Random) -> Document:
    """Times next to each other or far apart, near the limit of the format."""
    document, top = of_family("plain", rng.getrandbits(32)), 10 ** rng.randint(8, 12)
    for entry in document["stages"]:
        for kind in entry.keys() & {"F", "B", "W", "BW"}:
            entry[kind] = rng.choice([top, top - 1, rng.randint(1, top), rng.randint(1, 9)])
    return document | {"comm": {"default": rng.choice([0, 1, rng.randint(1, top)])}}


def medium(**flags: Any) -> Callable[[Random], Document]:
    """Problems of up to eight devices, too large for the oracle."""
    sizes: dict[str, Any] = {"devices": (3, 8), "stages": 16, "microbatches": (4, 16), "ops": 400}
    return lambda rng: drawn(rng.getrandbits(32), **(sizes | flags))


LARGER: dict[str, Callable[[Random], Document]] = {
    "scaled": scaled,
    "huge": huge,
    "uniform": medium(uniform=1.0, shapes=("chain", "loop", "V", "bidirectional")),
    "uneven": medium(memory=("enough", "tight"), longest=30),
    "lengths": medium(lists=("given", "same", "free"), shapes=("chain", "loop", "V")),
    "tight-modes": medium(modes=("recompute", "offload"), memory=("tight", "enough")),
    "wide-graphs": medium(graphs=(True,), nones=(0.0, 0.3), memory=("enough", "tight", "none")),
    "sequences": medium(slices=(2, 3, 4), lists=("", "given", "same", "free")),
    "paired": medium(pairs=("factor", "FB"), shapes=("V", "bidirectional")),
}
SMALL = {name.replace(" ", "-"): name for name in FAMILIES}
EVERY = (*SMALL, *LARGER)


def problem_of(family: str, rng: Random) -> Document:
    """Draw a problem of a family."""
    if family in LARGER:
        return LARGER[family](rng)
    return of_family(SMALL[family], rng.getrandbits(32))
