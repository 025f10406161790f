"""Seeds of random problems: a few on every run, the others where slow tests run too."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def seeds(count: int, *, quick: int) -> list[Any]:
    """Parameters 0 to ``count`` - 1, those from ``quick`` on marked slow."""
    return [*range(quick), *(pytest.param(n, marks=pytest.mark.slow) for n in range(quick, count))]


def of_each(
    families: Iterable[str], count: int, *, quick: int, fewer: Container[str] = ()
) -> list[Any]:
    """Families, each with seeds; of those with ``fewer`` only the first seed is quick."""
    return [
        pytest.param(family, n, marks=[pytest.mark.slow] * (n >= (1 if family in fewer else quick)))
        for family in families
        for n in range(count)
    ]
