"""What is settled before a window is solved, against all orders of a few nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random

import numpy as np
import pytest

from pipesat.kernels.windows import Matrix, WindowNodes, settle

COUNT = 5


def drawn(seed: int) -> tuple[WindowNodes, Matrix]:
    """One device's nodes, of which numbers 0, 1, 2 are in sequence and the last may be absent."""
    chance = Random(seed)

    def ints(least: int, most: int) -> np.ndarray:
        return np.array([chance.randint(least, most) for _ in range(COUNT)], np.int64)

    least, taken = ints(0, 4), ints(0, 3)
    present = np.ones(COUNT, np.int64)
    if seed % 2:
        present[-1] = least[-1] = 0
    waits = [(0, 1), (1, 2), (0, 3)]
    first = np.zeros((COUNT, COUNT), np.uint8)
    first[0, 1] = first[1, 2] = 1
    return WindowNodes(
        low=ints(0, 3),
        high=ints(12, 18),
        least=least,
        present=present,
        taken=taken,
        net=np.array([chance.randint(-3, int(most)) for most in taken], np.int64),
        before=np.array([before for before, _ in waits]),
        after=np.array([after for _, after in waits]),
        delay=np.array([chance.randint(0, 3) for _ in waits]),
        begin=np.array([0, COUNT]),
        slack=np.array([chance.randint(4, 7)]),
        held=np.array([chance.randint(0, 3)]),
        apart=np.array([1]),
    ), first


def schedules(n: WindowNodes) -> Iterator[dict[int, tuple[int, int]]]:
    """Yield, for every order that keeps the rules, each node's earliest start and latest end."""
    waits = [*zip(n.before.tolist(), n.after.tolist(), n.delay.tolist(), strict=True)]
    for chosen in {COUNT, COUNT - 1 + int(n.present[-1])}:
        for order in permutations(range(chosen)):
            start, end, held = dict[int, int](), dict[int, int](), int(n.held[0])
            ready, valid = 0, True
            for node in order:
                valid &= all(b in start for b, a, _ in waits if a == node)
                valid &= held + max(0, n.taken[node]) <= n.slack[0]
                held += int(n.net[node])
                known = [start[b] + n.least[b] + d for b, a, d in waits if a == node and b in start]
                start[node] = int(max([ready, n.low[node], *known]))
                ready = start[node] + int(n.least[node])
                valid &= ready <= n.high[node]
            if not valid:
                continue
            for at in range(chosen - 1, -1, -1):
                after = [end[order[at + 1]] - n.least[order[at + 1]]] if at + 1 < chosen else []
                own = [end[a] - n.least[a] - d for b, a, d in waits if b == order[at] and a in end]
                end[order[at]] = int(min([n.high[order[at]], *after, *own]))
            yield {node: (start[node], end[node]) for node in order}


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_is_possible_is_ruled_out(seed: int) -> None:
    nodes, first = drawn(seed)
    found = [*schedules(nodes)]
    if not found:
        return
    settle(nodes, first)
    for schedule in found:
        for node, (start, end) in schedule.items():
            assert nodes.low[node] <= start
            assert end <= nodes.high[node] or not nodes.present[node]
        order = [*schedule]
        for i, j in zip(*first.nonzero(), strict=True):
            if i in schedule and j in schedule:
                assert order.index(i) < order.index(j)


def test_memory_and_loads_decide_an_order() -> None:
    """Of two forwards of 2 and their backwards in a room of 3, one passes before the other enters.

    All take 2, so forward 1 starts at 4 or later, and with a latest end of 8 everything is decided.
    """
    nodes = WindowNodes(
        low=np.zeros(4, np.int64),
        high=np.full(4, 8, np.int64),
        least=np.full(4, 2, np.int64),
        present=np.ones(4, np.int64),
        taken=np.array([2, 2, 0, 0]),  # F0 F1 B0 B1
        net=np.array([2, 2, -2, -2]),
        before=np.array([0, 0, 1]),
        after=np.array([1, 2, 3]),
        delay=np.zeros(3, np.int64),
        begin=np.array([0, 4]),
        slack=np.array([3]),
        held=np.array([0]),
        apart=np.array([1]),
    )
    first = np.zeros((4, 4), np.uint8)
    first[0, 1] = first[0, 2] = first[1, 3] = first[2, 3] = 1
    settle(nodes, first)
    assert nodes.low.tolist() == [0, 4, 2, 6]
    assert nodes.high.tolist() == [2, 6, 4, 8]
    assert first[2, 1]
