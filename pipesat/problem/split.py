"""The best contiguous split under any cost of a stage: an exact dynamic programme.

``best[s][b] = min over a < b of combine(best[s - 1][a], cost(a, b, s - 1))`` with combine max or
sum; all stages have a layer. O(S L^2) elementary steps, as numpy arrays of at most L x L.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipesat.core.arrays import Ints
from pipesat.core.errors import require
from pipesat.problem.partition import check_counts, partition_of

StageCost: TypeAlias = Callable[[Ints, Ints, int], NDArray[Any]]
"""(a, b, s) -> cost of layers a to b - 1 as stage s; a is an array (n, 1), b one of (1, k)."""
Combine: TypeAlias = Literal["max", "sum"]
Mask: TypeAlias = NDArray[np.bool_]

FORBIDDEN: Final = 1 << 61
"""What a stage costs that must not be; a split that has such a stage is none."""
LARGEST_COST: Final = 1 << 60
_NARROWEST: Final = 64  # below, numpy's calls take longer than what they compute
_SQUARES: Final = 1 << 40  # of the largest load: sums over all stages stay exact


@dataclass(frozen=True)
class Split:
    """A partition and its cost.

    Attributes
    ----------
    value, lower_bound
        Its cost in the terms that were asked for, and what no partition can be below. It is proven
        best where they are equal.
    recompute
        Which stages compute activations again; empty: none.
    """

    partition: tuple[range, ...]
    value: int
    lower_bound: int
    recompute: tuple[bool, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether no partition costs less."""
        return self.value == self.lower_bound


def best_split(
    cost: StageCost,
    layers: int,
    stages: int,
    *,
    combine: Combine = "max",
    masks: Mask | None = None,
    longest: int | None = None,
) -> Split | None:
    """Return a split of least cost, or ``None`` if every split has a forbidden stage.

    Parameters
    ----------
    cost
        Integers from 0; :data:`FORBIDDEN` or more for what must not be.
    combine
        Whether the largest stage counts or the sum of all.
    masks
        Where cut c may lie, bool (S + 1, L + 1), as :func:`pipesat.layers.rules.cut_masks` gives
        it; ``None``: anywhere.
    longest
        Longer stages need not be looked at, if that is known: takes O(S L longest) then.

    Notes
    -----
    Of several best splits, the last stages are as large as they can be.
    """
    allowed = np.ones((stages + 1, layers + 1), dtype=bool) if masks is None else masks
    empty = np.where(np.tri(layers + 1, dtype=bool), FORBIDDEN, 0)  # a stage has a layer: a < b
    width = layers if longest is None else max(longest, _NARROWEST)
    best = [np.where(np.arange(layers + 1) == 0, 0, FORBIDDEN)]
    for stage in range(stages):
        # a stage must leave a layer for each one before and after it
        ends = np.full(layers + 1, FORBIDDEN)
        for left in range(stage + 1, layers - stages + stage + 2, width):
            columns = slice(left, min(left + width, layers - stages + stage + 2))
            rows = slice(max(stage, left - width), columns.stop - 1)
            table = _joined(cost, best[-1], rows, columns, stage, combine)
            np.maximum(table, empty[rows, columns], out=table)
            ends[columns] = table.min(axis=0)
        best.append(np.where(allowed[stage + 1], np.minimum(ends, FORBIDDEN), FORBIDDEN))
    value = int(best[-1][layers])
    if value >= FORBIDDEN:
        return None
    cuts = [layers]
    for stage in reversed(range(stages)):
        rows, column = slice(stage, cuts[-1]), slice(cuts[-1], cuts[-1] + 1)
        cuts.append(stage + int(_joined(cost, best[stage], rows, column, stage, combine).argmin()))
    return Split(partition_of(cuts[::-1]), value, value)


def _joined(
    cost: StageCost, best: Ints, rows: slice, columns: slice, stage: int, combine: Combine
) -> Ints:
    """Cost up to b (columns) if the stage begins with a (rows)."""
    a = np.arange(rows.start, rows.stop)[:, None]
    b = np.arange(columns.start, columns.stop)[None, :]
    costs = np.asarray(cost(a, b, stage), dtype=np.int64)
    before = best[rows, None]
    return np.maximum(before, costs) if combine == "max" else before + costs


def squares(ends: Ints, most: int) -> StageCost:
    """Squares of loads ``ends[b] - ends[a]``, none above ``most``: the most even have least sum.

    They are rounded to parts of ``most``, so that sums are exact.
    """

    def cost(a: Ints, b: Ints, _: int) -> Ints:
        load = (ends[b] - ends[a]) / max(1, most)
        return np.where(load <= 1, np.rint(_SQUARES * load**2).astype(np.int64), FORBIDDEN)

    return cost


def balanced(costs: Sequence[int], stages: int) -> tuple[range, ...]:
    """Cut so that the largest stage's cost is the least possible, an exact minimum, then evenly.

    ``costs[i] >= 0`` is layer i's cost, in any unit. Every stage has a layer. Among the cuts of
    least maximum it is one of least sum of squares: one long layer leaves no others long. Of those
    that are equal, every stage in turn takes as many layers as it can.
    """
    count = len(costs)
    check_counts(count, stages)
    for layer, cost in enumerate(costs):
        require(
            isinstance(cost, int) and not isinstance(cost, bool) and cost >= 0,
            "expected a whole number of at least 0",
            where=f"costs[{layer}]",
            value=cost,
        )
    ends = np.array([0, *accumulate(reversed(costs))])  # from the last layer: its ties are ours

    def suffices(most: int) -> bool:
        """Whether so many stages that take all they can, of at most ``most``, take all layers."""
        place = 0
        for _ in range(stages):
            place = int(np.searchsorted(ends, ends[place] + most, side="right")) - 1
        return place == count

    most = bisect_left(range(int(ends[-1])), True, lo=max(costs), key=suffices)
    found = best_split(squares(ends, most), count, stages, combine="sum")
    assert found is not None  # noqa: S101  such stages there are
    return partition_of([count - part.stop for part in reversed(found.partition)] + [count])
