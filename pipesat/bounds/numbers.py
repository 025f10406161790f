"""Arithmetic that reads the same for integers and for arrays of them, a number per cell."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

Number: TypeAlias = Any
"""An integer; or an array, of one cell for each way to cut layers into stages."""


def least(values: Iterable[Number]) -> Number:
    """Return the least of some numbers, cell by cell."""
    return reduce(lambda a, b: np.minimum(a, b) if is_table(a, b) else min(a, b), values)


def most(values: Iterable[Number]) -> Number:
    """Return the largest of some numbers, cell by cell."""
    return reduce(lambda a, b: np.maximum(a, b) if is_table(a, b) else max(a, b), values)


def where(condition: Any, then: Number, otherwise: Number) -> Number:
    """Return either number, cell by cell."""
    if is_table(condition):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise


def is_table(*values: Number) -> bool:
    """Whether some number is an array."""
    return any(isinstance(value, np.ndarray) for value in values)
