"""Cutting a model's layers into stages: contiguous slices, evenly or balanced by cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from pipesat.core.errors import BadInput

_UNITS: Final = 2.0**40
_NEVER: Final = 2**62


def even(layers: int, stages: int) -> tuple[range, ...]:
    """Cut evenly; the first ``layers % stages`` stages have one layer more.

    Raises
    ------
    BadInput
        If there is no stage, or there are fewer layers than stages.
    """
    _check_counts(layers, stages)
    size, more = divmod(layers, stages)
    return _slices([stage * size + min(stage, more) for stage in range(stages + 1)])


def balanced(costs: Sequence[int], stages: int) -> tuple[range, ...]:
    """Cut so that the largest stage's cost is the least possible, an exact minimum, then evenly.

    ``costs[i] >= 0`` is layer i's cost, in any unit. Every stage has a layer. Among the cuts of
    least maximum it is one of least sum of squares: one long layer leaves no others long. Of those
    that are equal, every stage in turn takes as many layers as it can.
    Takes O(S L^2), in arrays.

    Raises
    ------
    BadInput
        If there is no stage, there are fewer layers than stages, or a cost is not a whole number
        of at least 0.
    """
    _check_counts(len(costs), stages)
    for layer, cost in enumerate(costs):
        if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
            expected = "expected a whole number of at least 0"
            raise BadInput(expected, where=f"costs[{layer}]", value=cost)
    before = [0, *accumulate(costs)]
    low, high = max(costs), before[-1]
    while low < high:
        middle = (low + high) // 2
        if _cuts(before, stages, middle)[-1] == len(costs):
            high = middle
        else:
            low = middle + 1
    return _slices(_most_even(before, stages, low))


def _check_counts(layers: int, stages: int) -> None:
    for name, value in (("layers", layers), ("stages", stages)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadInput("expected a whole number of at least 1", where=name, value=value)
    if layers < stages:
        expected = f"expected at most {layers}, one per layer"
        raise BadInput(expected, where="stages", value=stages)


def _cuts(before: Sequence[int], stages: int, most: int) -> list[int]:
    """Greedy cuts: every stage takes layers up to cost ``most``, and leaves one per later stage.

    Taking all that fits lets every later stage start as late as possible, so the last cut is the
    number of layers if and only if some partition keeps within ``most``.
    """
    layers = len(before) - 1
    cuts = [0]
    for later in range(stages - 1, -1, -1):
        fits = bisect_right(before, before[cuts[-1]] + most) - 1
        cuts.append(min(fits, layers - later))
    return cuts


def _most_even(before: Sequence[int], stages: int, most: int) -> list[int]:
    """Cuts of stages of at most ``most`` with the least sum of squares, in units of 2^-40 of it."""
    import numpy as np  # here: no help needs it

    layers = len(before) - 1
    loads = np.array([cost / max(1, most) for cost in before])
    ends = [bisect_right(before, cost + most) for cost in before]
    squares = [
        np.rint((loads[a + 1 : ends[a]] - loads[a]) ** 2 * _UNITS).astype(np.int64)
        for a in range(layers)
    ]
    left = np.full(layers + 1, _NEVER)
    left[layers] = 0
    chosen = []
    for _ in range(stages):
        sums = [own + left[a + 1 : ends[a]] for a, own in enumerate(squares)]
        # the last of those that are least: of equal cuts the one that takes most layers
        taken = [a + total.size - int(total[::-1].argmin()) for a, total in enumerate(sums)]
        left = np.array([*(min(total.min(), _NEVER) for total in sums), _NEVER])
        chosen.append(taken)
    cuts = [0]
    for taken in reversed(chosen):
        cuts.append(taken[cuts[-1]])
    return cuts


def _slices(cuts: Sequence[int]) -> tuple[range, ...]:
    return tuple(range(begin, end) for begin, end in pairwise(cuts))
