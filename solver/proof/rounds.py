"""Which stretch of a long run to try next: longer and longer ones, then again with more time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pipesat.solver.proof.stretches import Part

_FIRST_LIMIT = 1.0  # seconds for one model
_MORE_TIME = 3.0  # times as much from one round to the next
_PATIENCE = 2  # stretches of a part in a row without an outcome that end it for this round


class Rounds:
    """Rounds through all stretches that are not ``settled``, each with more time (``limit``).

    ``lengths`` has what there is to try of each part, in microbatches; ``pays`` says whether
    anything may follow from one by now: others wait.
    """

    def __init__(
        self, lengths: Mapping[Part, Sequence[int]], pays: Callable[[Part, int], bool]
    ) -> None:
        self.lengths, self.pays = lengths, pays
        self.settled: set[tuple[Part, int]] = set()
        self.limit = _FIRST_LIMIT
        self.tried = 0  # models that were solved
        self._left = 0.0
        self._parts = self._longer_and_longer()

    def next(self, left: float) -> tuple[Part, int] | None:
        """Return the next part, or ``None`` if all models are too large for the time left."""
        self._left = left
        return next(self._parts, None)

    def _longer_and_longer(self) -> Iterator[tuple[Part, int]]:
        while True:
            before = self.tried, len(self.settled)
            patience = dict.fromkeys(self.lengths, _PATIENCE)
            for n in sorted({n for lengths in self.lengths.values() for n in lengths}):
                for kind, lengths in self.lengths.items():
                    if (kind, n) in self.settled or not patience[kind] or n not in lengths:
                        continue
                    if not self.pays(kind, n):
                        continue
                    yield kind, n
                    settled = (kind, n) in self.settled
                    patience[kind] = _PATIENCE if settled else patience[kind] - 1
                if not any(patience.values()):
                    break
            if before == (self.tried, len(self.settled)) and self.limit > self._left:
                return
            self.limit *= _MORE_TIME
