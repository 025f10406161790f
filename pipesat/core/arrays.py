"""Names of numpy's arrays, for annotations; and what makes millions of small objects quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"


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
