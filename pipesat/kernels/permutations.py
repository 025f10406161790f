"""Which microbatch takes which place of an order: what each choice is worth, and exchanges.

A permutation has, by place, the number of the microbatch that is there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pipesat.kernels.arrays import UNLIMITED, Ints
from pipesat.kernels.compiled import compiled

AT_ONCE: Final = 192
"""Neighbours that are valued before the best of them is taken."""
_KICK: Final = 3  # exchanges at random that lead away from the best


class Places(NamedTuple):
    """An order whose microbatches may change places.

    Attributes
    ----------
    sequence
        All items, each after what it waits for.
    device, place
        Of an item: its device, and the place of its microbatch.
    begin, source
        From ``begin[i]`` to ``begin[i + 1]``, what item i waits for.
    amounts
        By item and class: time, memory taken at the start, net change, delay of the input.
    slack
        By device.
    kind
        Class by microbatch.
    first, end
        First place of every route that has several classes, and the place after its last one.
    """

    sequence: Ints
    device: Ints
    place: Ints
    begin: Ints
    source: Ints
    amounts: Ints
    slack: Ints
    kind: Ints
    first: Ints
    end: Ints


@compiled
def value_of(o: Places, permutation: Ints) -> int:
    """Makespan under a permutation; ``UNLIMITED`` if an item exceeds its device's memory."""
    sequence, devices, places, begins, sources = o.sequence, o.device, o.place, o.begin, o.source
    amounts, slacks, kinds = o.amounts, o.slack, o.kind
    ends, makespan = np.empty(len(sequence), np.int64), 0
    busy_until, held = np.zeros(len(slacks), np.int64), np.zeros(len(slacks), np.int64)
    for number in range(len(sequence)):
        item = sequence[number]
        device, kind = devices[item], kinds[permutation[places[item]]]
        if held[device] + amounts[item, kind, 1] > slacks[device]:
            return UNLIMITED
        held[device] += amounts[item, kind, 2]
        start = busy_until[device]
        for at in range(begins[item], begins[item + 1]):
            start = max(start, ends[sources[at]] + amounts[item, kind, 3])
        ends[item] = busy_until[device] = start + amounts[item, kind, 0]
        makespan = max(makespan, ends[item])
    return makespan


@compiled
def drawn(state: Ints, below: int) -> int:
    """Draw a number from 0 to ``below`` - 1; the state, which is not 0, moves on.

    By Marsaglia's multiply-with-carry. Nothing exceeds 63 bits: numba lets a compiler assume that
    sums and products of int64 do not.
    """
    state[0] = (state[0] & 0xFFFFFFFF) * 1791398085 + (state[0] >> 32)
    return (state[0] & 0xFFFFFFFF) * below >> 32


@compiled
def exchange(o: Places, permutation: Ints, state: Ints) -> None:
    """Swap two microbatches of one route that differ, or shift one to the place of the other."""
    route = drawn(state, len(o.first))
    first, count = o.first[route], o.end[route] - o.first[route]
    a = b = first
    while o.kind[permutation[a]] == o.kind[permutation[b]]:
        a, b = first + drawn(state, count), first + drawn(state, count)
    step = 1 if a < b else -1
    if drawn(state, 2):
        permutation[a], permutation[b] = permutation[b], permutation[a]
    else:
        shifted = permutation[a]
        for at in range(a, b, step):
            permutation[at] = permutation[at + step]
        permutation[b] = shifted


@compiled
def improve(
    o: Places, here: Ints, best: Ints, known: Ints, state: Ints, rounds: int, most: int, enough: int
) -> int:
    """Walk on by exchanges, each round to the best of some neighbours; how many rounds it ran.

    ``known`` has the value here, the best one, and how many rounds have brought nothing since; it
    changes, as ``here`` and ``best`` do. A round without anything better leads away from the best.
    Ends after ``most`` such rounds, or at a value of ``enough``.
    """
    tried, winner = np.empty_like(here), np.empty_like(here)
    for number in range(rounds):
        if known[2] >= most or known[1] <= enough:
            return number
        least = UNLIMITED + 1
        for _ in range(AT_ONCE):
            tried[:] = here
            exchange(o, tried, state)
            value = value_of(o, tried)
            if value < least:
                least = value
                winner[:] = tried
        if least < known[0] or (least == known[0] and drawn(state, 2)):
            known[2] += 1 if least == known[0] else 0
            known[0] = least
            here[:] = winner
            if least < known[1]:
                known[1] = least
                known[2] = 0
                best[:] = here
        else:
            known[2] += 1
            here[:] = best
            for _ in range(_KICK):
                tried[:] = here
                exchange(o, tried, state)
                if value_of(o, tried) < UNLIMITED:
                    here[:] = tried
            known[0] = value_of(o, here)
    return rounds
