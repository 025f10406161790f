"""Names of numpy's arrays, for annotations; and what makes millions of small objects quickly."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"


def ints(numbers: Iterable[int]) -> Ints:
    """Return numbers as an array of int64."""
    import numpy as np  # importing pipesat stays fast

    return np.fromiter(numbers, np.int64)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Pause Python's search for circles of objects, which takes half the time of a million ops."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
