"""What tests of hand-written schedules share."""

from __future__ import annotations

from collections.abc import Sequence

from pipesat.problem.ops import Item, Op, Pair


def has_counts_of_the_picture(items: Sequence[Item], rank: int) -> None:
    """DualPipe's published picture: one rank's items by step; ``rank`` counts from outside."""
    # step 4 has 2 (10 - 8 + rank + 1) pairs, step 5 3 - rank; the middle ranks undo one
    pairs = 2 * (3 + rank) + (3 - rank) - (rank == 3)
    split = 2 * (3 - rank) + (rank + 1)  # steps 3 and 7, half of step 6
    assert sum(isinstance(item, Pair) for item in items) == pairs
    for kind, count in (("W", split), ("B", split), ("F", 20 - pairs), ("BW", 20 - pairs - split)):
        assert sum(isinstance(x, Op) and x.kind == kind for x in items) == count
