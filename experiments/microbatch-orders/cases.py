"""Lengths drawn at random, their problems, and where results are kept."""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from pipesat.placement.lengths import microbatches_from_lengths

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

import pipesat  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402

RESULTS = HERE / "results.csv"
DRAWS: Final = 10
DEVICES: Final = (4, 8, 16)
PER_DEVICE: Final = (2, 4)
MEAN: Final = 4096
_SHORTEST, _LONGEST = MEAN // 16, 4 * MEAN


def _normal(deviation: float) -> Callable[[random.Random], float]:
    return lambda draw: draw.gauss(1, deviation)


DISTRIBUTIONS: Final[dict[str, Callable[[random.Random], float]]] = {
    **{f"normal {deviation}": _normal(deviation) for deviation in (0.1, 0.3, 0.6, 1.0)},
    "lognormal": lambda draw: draw.lognormvariate(-0.32, 0.8),  # mean 1
    "long tail": lambda draw: draw.choices([0.5, 1, 2, 4], [40, 40, 15, 5])[0],
}
"""From the mean length on, cut off at 1/16 and at 4 times the mean."""

WAYS: Final = ("given", "descending", "both-ends", "ours")


class Case(NamedTuple):
    """One draw of microbatches for one pipeline."""

    distribution: str
    devices: int
    microbatches: int
    draw: int


def cases() -> Iterator[Case]:
    """Yield one draw of everything after the other."""
    for draw in range(DRAWS):
        for distribution in DISTRIBUTIONS:
            for devices in DEVICES:
                for per_device in PER_DEVICE:
                    yield Case(distribution, devices, per_device * devices, draw)


def problem_of(case: Case) -> Problem:
    """Return a chain with the costs of the Zero Bubble paper's 6.2B model.

    A fifth of the time grows with the square of the length. Memory is for 2p microbatches of the
    mean length.
    """
    chance = random.Random(str(tuple(case)))
    drawn = (DISTRIBUTIONS[case.distribution](chance) for _ in range(case.microbatches))
    lengths = [min(max(round(MEAN * x), _SHORTEST), _LONGEST) for x in drawn]
    return pipesat.Problem.chain(
        case.devices,
        microbatches_from_lengths(lengths, MEAN, Fraction(1, 5)),
        F=29802,
        B=29428,
        W=19530,
        held_after_F=10000,
        held_after_B=5000,
        memory=2 * case.devices * 10000,
        comm=577,
        order="same",
    )


def known() -> dict[Case, dict[str, int]]:
    """Return what has been written so far."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open() as file:
        return {
            Case(
                row["distribution"],
                int(row["devices"]),
                int(row["microbatches"]),
                int(row["draw"]),
            ): {way: int(row[way]) for way in (*WAYS, "bound")}
            for row in csv.DictReader(file)
        }
