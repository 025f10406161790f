"""How much work memory admits at most."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction


def most_work(items: Iterable[tuple[int, int, int]], room: int | None) -> int:
    """Upper bound on the work that memory admits: a knapsack's fractional relaxation.

    ``items`` are ``(size, work, count)``. Where all sizes are equal, whole items are counted, which
    is exact.
    """
    kinds = [kind for kind in items if kind[2] > 0]
    free = sum(work * count for size, work, count in kinds if size == 0)
    sized = sorted((k for k in kinds if k[0] > 0), key=_density, reverse=True)
    if room is None:
        return free + sum(work * count for _, work, count in sized)
    room = max(room, 0)
    if len({size for size, _, _ in sized}) == 1:
        room -= room % sized[0][0]
    total = 0
    for size, work, count in sized:
        take = min(room, size * count)
        total += -(-work * take // size)
        room -= take
    return free + total


def _density(kind: tuple[int, int, int]) -> Fraction:
    """Work per memory, exactly: a wrong order would make the upper bound too low."""
    size, work, _ = kind
    return Fraction(work, size)
