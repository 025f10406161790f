"""The repeating middle of a long schedule: found, so that a picture shows it once.

A schedule repeats from ``begin`` on, ``times`` times, if every op that starts in one period starts
again in the next one, ``period`` later, for a microbatch that is a fixed number further on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipesat.core.arrays import Ints
    from pipesat.picture.rows import Boxes

_LEAST_TIMES = 4


class Fold(NamedTuple):
    """The middle that repeats: ``times`` periods from ``begin`` on, of which one is shown."""

    begin: int
    period: int
    times: int

    @property
    def hidden(self) -> int:
        """How long what is left out lasts."""
        return (self.times - 1) * self.period

    @property
    def seam(self) -> int:
        """End of the period that is shown."""
        return self.begin + self.period

    def shown(self, starts: Any) -> NDArray[np.bool_]:
        """Whether what begins at these times is drawn."""
        shown: NDArray[np.bool_] = (starts < self.seam) | (starts >= self.seam + self.hidden)
        return shown

    def moved(self, times: Any) -> Any:
        """Where times are drawn that are shown."""
        return np.where(times < self.seam + self.hidden, times, times - self.hidden)


def fold_of(boxes: Boxes) -> Fold | None:
    """Return the repetition that leaves out most, ``None`` if there is none.

    ``boxes`` has all ops and copies; a copy's ``kind`` differs from those of ops.
    """
    if not len(boxes):
        return None
    keys, group = np.unique(boxes[["stage", "kind"]], return_inverse=True)
    last = int(boxes["microbatch"].max())
    start, shape = (np.full((len(keys), last + 1), -1, dtype=np.int64) for _ in range(2))
    start[group, boxes["microbatch"]] = boxes["start"]
    # length and mode have to be equal as well
    shape[group, boxes["microbatch"]] = 64 * (boxes["end"] - boxes["start"]) + boxes["mode"]
    longest = start[0]
    best = None
    for step in range(1, max(2, last // _LEAST_TIMES)):
        middle = (last - step) // 2
        if longest[middle] < 0 or longest[middle + step] < 0:
            continue
        fold = _longest(start, shape, step, int(longest[middle + step] - longest[middle]))
        if fold is not None and (best is None or fold.hidden > best.hidden):
            best = fold
        if best is not None and 2 * best.hidden > int(boxes["end"].max()):
            break  # longer periods cannot leave out much more
    return best


def _longest(start: Ints, shape: Ints, step: int, period: int) -> Fold | None:
    """Return the longest repetition of a period that goes on by ``step`` microbatches."""
    if period <= 0:
        return None
    before, after = start[:, :-step], start[:, step:]
    same = (before >= 0) & (after - before == period) & (shape[:, :-step] == shape[:, step:])
    ends = np.concatenate([start[:, -step:].ravel(), before[~same]])  # nothing follows on these
    starts = np.concatenate([start[:, :step].ravel(), after[~same]])  # and these follow on nothing
    breaks = np.unique(np.concatenate([ends[ends >= 0], starts[starts >= 0] - period]))
    if len(breaks) < 2:
        return None
    widest = int(np.argmax(np.diff(breaks)))
    inside = start[(start > breaks[widest]) & (start < breaks[widest + 1])]
    if not len(inside):
        return None
    begin = int(inside.min())
    times = (int(breaks[widest + 1]) + period - begin) // period
    return Fold(begin, period, times) if times >= _LEAST_TIMES else None
