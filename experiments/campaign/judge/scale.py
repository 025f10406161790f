"""The same problem with smaller times."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from campaign.judge.reading import KINDS, Pipe, Stage


def common_divisor(pipe: Pipe) -> int:
    """Largest number that divides all times; the optimum of the quotients times it is exact.

    Best times are longest paths, sums of durations and delays, so they are multiples too.
    """
    times = [getattr(stage, kind) for stage in pipe.stages for kind in KINDS]
    return gcd(*times, *(d for both in pipe.delay.values() for d in both)) or 1


def divided(pipe: Pipe, by: int) -> Pipe:
    """All times divided, rounded down."""
    if by == 1:
        return pipe

    def smaller(stage: Stage) -> Stage:
        return replace(stage, **{kind: getattr(stage, kind) // by for kind in KINDS})

    delay = {link: (a // by, b // by) for link, (a, b) in pipe.delay.items()}
    pairs = {kinds: time // by for kinds, time in pipe.pairs.items()}
    return replace(pipe, stages=tuple(map(smaller, pipe.stages)), delay=delay, pairs=pairs)
