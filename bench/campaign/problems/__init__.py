"""Random problems, a module per family; a new capability adds one and its line here."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from campaign.problems import big, differing, medium, tiny

Document = dict[str, Any]

PROBLEMS: dict[str, Callable[[Random], Document]] = {
    "chain": tiny.chain,
    "chunks": tiny.chunks,
    "routes": tiny.routes,
    "zero": tiny.zero,
    "zero-chunks": tiny.zero_chunks,
    "held-zero": tiny.held_zero,
    "held-zero-modes": differing.held_zero_modes,
    "zero-modes": differing.zero_modes,
    "tight": tiny.tight,
    "overlap": tiny.overlap,
    "pairs": tiny.pairs,
    "scaled": big.scaled,
    "huge": big.huge,
    "uniform": medium.uniform,
    "uneven": medium.uneven,
    "two-ways": medium.two_ways,
    "classes": differing.classes,
    "routes-classes": differing.routes_with_classes,
    "modes": differing.modes,
    "classes-modes": differing.classes_and_modes,
    "mixture": differing.mixture,
    "lengths": differing.lengths,
    "tight-modes": differing.tight_modes,
}
"""The name of a family -> its problems."""
