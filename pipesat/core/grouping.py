"""Values by their keys, and by rows: what many loops over ops, stages and steps come to."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, keys and values in the order in which they come."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def firsts(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """Return the first value of each key."""
    return {key: values[0] for key, values in grouped(pairs).items()}


def in_rows(rows: int, pairs: Iterable[tuple[int, V]]) -> tuple[tuple[V, ...], ...]:
    """Return the values of rows 0 to ``rows - 1``, each row's in the order in which they come."""
    found = grouped(pairs)
    return tuple(tuple(found.get(row, ())) for row in range(rows))
