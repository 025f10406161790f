"""Holds bounds of the period against the exact least one, of drawn problems."""

from __future__ import annotations

from fractions import Fraction

from pipesat.bounds.period import steady_bounds
from pipesat.problem.problem_file import parse_problem
from tests.oracle.generator import PAIRS, drawn
from tests.oracle.period import TooLarge, least_period

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "pairs": {"pairs": PAIRS, "stages": 2, "longest": 2},
    "modes": {"modes": ("recompute",), "choices": ("microbatch",), "stages": 2, "longest": 2},
}


def held_against(kind: str, seed: int, most: int) -> tuple[Fraction, Fraction] | None:
    """Return the best bound and the least period of a drawn problem; ``None`` if it is too large.

    Raises
    ------
    AssertionError
        If the bound is above.
    """
    told: dict[str, object] = {"stages": 3, "longest": 3, **KINDS[kind]}
    document = drawn(
        f"period {kind} {seed}",
        shapes=("one device", "chain", "loop", "V"),
        devices=(1, 2),
        memory=("tight", "enough", "enough", "any"),
        delays=(0, 0, 1),
        held=0.2,
        **told,  # type: ignore[arg-type]
    )
    try:
        least = least_period(document, most)
    except TooLarge:
        return None
    if least is None:
        return None
    bound = max(steady.rate for steady in steady_bounds(parse_problem(document), "makespan"))
    assert bound <= least, f"{kind} {seed}: {bound} is above {least}"
    return bound, least


def wrong_of_seed(seed: int, most: int = 400) -> list[str]:
    """What is wrong with the bound of a drawn problem; its kind goes by the seed."""
    kind = [*KINDS][seed % len(KINDS)]
    try:
        held_against(kind, seed, most)
    except AssertionError as error:
        return [str(error)]
    return []
