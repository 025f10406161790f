"""Which short run to try next: longer and longer ones, then again with more time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

_FIRST_LIMIT = 1.0  # seconds for one model
_MORE_TIME = 3.0  # times as much from one round to the next
_PATIENCE = 3  # models of a kind in a row without an outcome that end it for this round

RunKind: TypeAlias = Literal["step", "makespan"]
ShortRun: TypeAlias = tuple[RunKind, int]
"""What is bounded, and of how many microbatches."""
_KINDS: Final[tuple[RunKind, ...]] = ("makespan", "step")


class Rounds:
    """Rounds through all runs that are not ``settled``, each with more time (``limit``)."""

    def __init__(self, microbatches: int) -> None:
        self.microbatches = microbatches
        self.settled: set[ShortRun] = set()
        self.limit = _FIRST_LIMIT
        self.tried = 0  # models that were solved
        self._left = 0.0
        self._runs = self._longer_and_longer()

    def next(self, left: float) -> ShortRun | None:
        """Return the next run, or ``None`` if all models are too large for the time left."""
        self._left = left
        return next(self._runs, None)

    def _longer_and_longer(self) -> Iterator[ShortRun]:
        while ("makespan", self.microbatches) not in self.settled:
            before = self.tried, len(self.settled)
            patience = dict.fromkeys(_KINDS, _PATIENCE)
            for n in range(1, self.microbatches + 1):
                for kind in _KINDS:
                    longest = self.microbatches - (kind == "step")
                    if (kind, n) in self.settled or not patience[kind] or n > longest:
                        continue
                    yield kind, n
                    settled = (kind, n) in self.settled
                    patience[kind] = _PATIENCE if settled else patience[kind] - 1
                if not any(patience.values()):
                    break
            if before == (self.tried, len(self.settled)) and self.limit > self._left:
                return
            self.limit *= _MORE_TIME
