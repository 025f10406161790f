"""What a search may be told: seconds, threads, seed."""

from __future__ import annotations

from math import isfinite
from typing import Final

from pipesat.core.errors import BadInput

MOST_SECONDS: Final = 10**7
MOST_WORKERS: Final = 1024
MOST_SEED: Final = 2**31 - 1


def require_settings(
    time_limit: float | None = None, workers: int | None = None, seed: int = 0
) -> None:
    """Pass if a search can be run so.

    Raises
    ------
    BadInput
        Naming the parameter that is out of range.
    """
    if time_limit is not None and not (isfinite(time_limit) and 0 < time_limit <= MOST_SECONDS):
        text = f"expected a positive number of seconds, at most {MOST_SECONDS}"
        raise BadInput(text, where="time_limit", value=time_limit)
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        text = f"expected 1 to {MOST_WORKERS} threads, or None"
        raise BadInput(text, where="workers", value=workers)
    if not 0 <= seed <= MOST_SEED:
        raise BadInput(f"expected 0 to {MOST_SEED}", where="seed", value=seed)
