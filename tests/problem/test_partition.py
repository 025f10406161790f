"""Layer partitions, against all possible cuts on small models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.core.errors import BadInput
from pipesat.problem.partition import even
from pipesat.problem.split import balanced


def all_partitions(layers: int, stages: int) -> list[tuple[range, ...]]:
    partitions = []
    for inner in combinations(range(1, layers), stages - 1):
        cuts = (0, *inner, layers)
        partitions.append(tuple(range(a, b) for a, b in pairwise(cuts)))
    return partitions


def test_even_gives_the_remainder_to_the_first_stages() -> None:
    assert even(10, 4) == (range(3), range(3, 6), range(6, 8), range(8, 10))
    assert even(4, 4) == (range(1), range(1, 2), range(2, 3), range(3, 4))
    assert even(7, 1) == (range(7),)


@given(st.integers(1, 60), st.data())
def test_even_covers_every_layer_once_and_sizes_fall_by_at_most_one(
    layers: int, data: st.DataObject
) -> None:
    partition = even(layers, data.draw(st.integers(1, layers)))
    assert [layer for part in partition for layer in part] == list(range(layers))
    sizes = [len(part) for part in partition]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def stage_costs(costs: Sequence[int], partition: Sequence[range]) -> tuple[int, ...]:
    return tuple(sum(costs[layer] for layer in layers) for layers in partition)


def test_balanced_by_hand() -> None:
    # the first layer alone costs 9, and so do the other four together
    assert balanced([9, 1, 1, 1, 6], 2) == (range(1), range(1, 5))
    # the mean is 6, but no cut is below 8: {5} {3, 5} or {5, 3} {5}
    assert stage_costs([5, 3, 5], balanced([5, 3, 5], 2)) == (8, 5)
    # every stage has a layer, though all of them would fit into the first
    assert balanced([0, 0, 7], 3) == (range(1), range(1, 2), range(2, 3))
    # a last layer of 7 lets nobody be quicker: 3 + 3 + 3 + 7, and not 7 + 1 + 1 + 7
    assert [*map(len, balanced([1] * 9 + [7], 4))] == [3, 3, 3, 1]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.data())
def test_balanced_is_the_exact_minimum_and_of_those_the_most_even_one(
    costs: list[int], data: st.DataObject
) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    candidates = all_partitions(len(costs), stages)
    least = min(max(stage_costs(costs, partition)) for partition in candidates)
    best = [p for p in candidates if max(stage_costs(costs, p)) == least]
    squares = [sum(cost**2 for cost in stage_costs(costs, p)) for p in best]
    even_ones = [p for p, total in zip(best, squares, strict=True) if total == min(squares)]
    assert balanced(costs, stages) == max(even_ones, key=lambda p: [part.stop for part in p])


@pytest.mark.parametrize("cut", [even, lambda layers, stages: balanced([1] * layers, stages)])
@pytest.mark.parametrize(
    ("layers", "stages", "message"),
    [
        (4, 0, "stages: got 0, expected a whole number of at least 1"),
        (4, -1, "stages: got -1, expected a whole number of at least 1"),
        (4, True, "stages: got True, expected a whole number of at least 1"),
        (0, 1, "layers: got 0, expected a whole number of at least 1"),
        (3, 4, "stages: got 4, expected at most 3, one per layer"),
    ],
)
def test_impossible_cuts_are_bad_input(cut, layers: int, stages: int, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput) as info:
        cut(layers, stages)
    assert str(info.value) == message


@pytest.mark.parametrize("cost", [-1, 0.5, True, None])
def test_a_wrong_cost_is_named(cost: object) -> None:
    with pytest.raises(BadInput, match=r"costs\[1\]: got .*, expected a whole number"):
        balanced([1, cost, 1], 2)  # type: ignore[list-item]
