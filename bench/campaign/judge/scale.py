"""The same problem with smaller times."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from campaign.judge.amounts import Stage
from campaign.judge.reading import KINDS, Pipe


def common_divisor(pipe: Pipe) -> int:
    """Largest number that divides all times; the optimum of the quotients times it is exact.

    Best times are longest paths, sums of durations and delays, so they are multiples too.
    """
    amounts = [a for rows in pipe.ways for row in rows for a in row.values()]
    times = [getattr(a, kind) for a in amounts for kind in KINDS]
    copies = [time for a in amounts if a.copies for time in a.copies[:2]]
    delays = (d for rows in pipe.delay.values() for both in rows for d in both)
    return gcd(*times, *copies, *delays) or 1


def divided(pipe: Pipe, by: int) -> Pipe:
    """All times divided, rounded down."""
    if by == 1:
        return pipe

    def smaller(stage: Stage) -> Stage:
        copies = stage.copies and (stage.copies[0] // by, stage.copies[1] // by, stage.copies[2])
        times = {kind: getattr(stage, kind) // by for kind in KINDS}
        return replace(stage, **times, copies=copies)

    return replace(
        pipe,
        stages=tuple(map(smaller, pipe.stages)),
        ways=tuple(
            tuple({name: smaller(a) for name, a in row.items()} for row in rows)
            for rows in pipe.ways
        ),
        delay={
            link: tuple((a // by, b // by) for a, b in rows) for link, rows in pipe.delay.items()
        },
        pairs={
            kinds: said if isinstance(said, tuple) else said // by
            for kinds, said in pipe.pairs.items()
        },
    )
