"""Seeds of random problems: a few on every run, the others where slow tests run too."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(count: int, *, quick: int) -> list[Any]:
    """Parameters 0 to ``count`` - 1, those from ``quick`` on marked slow."""
    return [*range(quick), *(pytest.param(n, marks=pytest.mark.slow) for n in range(quick, count))]
