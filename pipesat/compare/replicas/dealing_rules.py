"""What frameworks do: rules that deal sequences to replicas and microbatches, without a search.

A rule returns microbatches of each replica in the order in which they enter, or raises
:class:`pipesat.core.errors.NotApplicable`. All see one :class:`pipesat.compare.replicas.deal.Load`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import numpy as np

from pipesat.compare.replicas.deal import Load
from pipesat.core.arrays import Ints
from pipesat.core.errors import NotApplicable, require_applicable
from pipesat.core.grouping import in_rows

Replicas: TypeAlias = list[list[list[int]]]


def as_given(load: Load) -> Replicas:
    """By number: each microbatch takes the next ones, up to its share of all tokens."""
    ends = load.tokens.cumsum()
    wanted = ends[-1] * np.arange(1, load.count) / load.count
    cuts = np.searchsorted(ends, wanted) + 1
    places = np.arange(load.count - 1)
    cuts = np.maximum.accumulate(cuts - places) + places  # at least one sequence in each
    cuts = np.minimum(cuts, len(ends) - load.count + 1 + places)
    packs = [part.tolist() for part in np.split(np.arange(len(ends)), cuts)]
    return [packs[at : at + load.replay.places] for at in range(0, load.count, load.replay.places)]


def dealt_in_turn(load: Load) -> Replicas:
    """The longest first, one to each replica in turn, and to each of its microbatches in turn."""
    found: Replicas = [[[] for _ in range(load.replay.places)] for _ in range(load.replicas)]
    for number, sequence in enumerate(_descending(load.work).tolist()):
        at = number // load.replicas % load.replay.places
        found[number % load.replicas][at].append(sequence)
    return found


@lru_cache(maxsize=1)  # two rules begin with it
def karmarkar_karp(load: Load) -> Replicas:
    """Karmarkar and Karp's differencing on work: replicas equal in number, then microbatches."""
    found = []
    for members in differencing(load.work, load.replicas, equal=True):
        parts = [[k] for k in range(len(members))]
        if not load.whole:
            parts = differencing(load.work[members], load.replay.places, equal=False)
        found.append([[members[k] for k in part] for part in parts])
    return found


def verl(load: Load) -> Replicas:
    """As verl: Karmarkar-Karp, then small microbatches at both ends."""
    found = []
    for parts in karmarkar_karp(load):
        row = sorted(parts, key=lambda part: -int(load.work[part].sum()))
        found.append([*row[::2][::-1], *row[1::2]])
    return found


def megatron(load: Load) -> Replicas:
    """As Megatron-LM's and torchtitan's packing: the next one that fits, in the order given.

    Where microbatches are missing, the last sequences of the last ones become some (Megatron-LM's
    ``DpBalancedScheduler``). They go to replicas in turn.
    """
    packs: list[list[int]] = []
    filled = cap = _cap(load)
    for sequence, length in enumerate(load.tokens.tolist()):
        if filled + length > cap:
            packs.append([])
            filled = 0
        packs[-1].append(sequence)
        filled += length
    number = len(packs) - 1
    while len(packs) < load.count and number >= 0:
        if len(packs[number]) > 1:
            packs.append([packs[number].pop()])
        else:
            number -= 1
    return _in_turn(load, packs)


def torchtitan(load: Load) -> Replicas:
    """As torchtitan's proposal 3938: first fit, the longest first; the heaviest is split.

    Work is the square of lengths. Microbatches of like work run at the same time.
    """
    lengths = load.tokens
    if load.whole:
        return _in_turn(load, [[sequence] for sequence in _descending(lengths).tolist()])
    cap = _cap(load)
    left = np.full(load.count, cap)
    packs: list[list[int]] = [[] for _ in range(load.count)]
    for sequence in _descending(lengths).tolist():
        at = int((left >= lengths[sequence]).argmax())
        require_applicable(left[at] >= lengths[sequence], "it needs more microbatches")
        left[at] -= lengths[sequence]
        packs[at].append(sequence)
    squares = (lengths.astype(float) ** 2).tolist()
    heap = [(-sum(squares[s] for s in pack), pack) for pack in packs if pack]
    done, heap = [entry for entry in heap if len(entry[1]) == 1], [e for e in heap if len(e[1]) > 1]
    heapify(heap)
    while len(done) + len(heap) < load.count and heap:
        _, pack = heappop(heap)
        halves: list[list[int]] = [[], []]
        work = [0.0, 0.0]
        for sequence in sorted(pack, key=lambda s: -squares[s]):
            less = int(work[1] < work[0])
            halves[less].append(sequence)
            work[less] += squares[sequence]
        for total, half in zip(work, halves, strict=True):
            if len(half) > 1:
                heappush(heap, (-total, half))
            else:
                done.append((-total, half))
    return _in_turn(load, [pack for _, pack in sorted([*done, *heap])])


RULES: Final[dict[str, Callable[[Load], Replicas]]] = {
    "as given": as_given,
    "dealt in turn": dealt_in_turn,
    "Megatron": megatron,
    "torchtitan": torchtitan,
    "Karmarkar-Karp": karmarkar_karp,
    "verl": verl,
}
"""By name, as tables show them."""


def differencing(work: Ints, parts: int, *, equal: bool) -> list[list[int]]:
    """Partition numbers of little difference between sums: Karmarkar and Karp, 1982.

    Of the partitions into ``parts`` there are at first, the two of the largest differences are
    joined, the largest part of one with the smallest of the other, until one is left. They begin
    with one number each, or where ``equal`` with as many as there are parts.
    """
    order = _descending(work)
    size = parts if equal else 1
    order = np.concatenate([order, np.full(-len(order) % size, -1)])
    sums = np.zeros((len(order) // size, parts), dtype=np.int64)
    sums[:, :size] = np.where(order < 0, 0, work[order]).reshape(-1, size)  # descending
    nodes = [*sums]
    heap = [(int(own[-1] - own[0]), number) for number, own in enumerate(nodes)]
    heapify(heap)
    joined: list[tuple[int, int, Ints]] = []
    while len(heap) > 1:
        one, other = heappop(heap)[1], heappop(heap)[1]
        both = nodes[one] + nodes[other][::-1]
        rank = (-both).argsort(kind="stable")
        joined.append((one, other, rank))
        nodes.append(both[rank])
        heappush(heap, (int(nodes[-1][-1] - nodes[-1][0]), len(nodes) - 1))
    part_of: dict[int, Ints] = {len(nodes) - 1: np.arange(parts)}
    first = len(order) // size
    for number, (one, other, rank) in reversed([*enumerate(joined, first)]):
        place = np.empty(parts, dtype=np.int64)
        place[rank] = part_of.pop(number)
        part_of[one], part_of[other] = place, place[::-1]
    found = in_rows(
        parts,
        (
            (part, member)
            for number, own in enumerate(order.reshape(-1, size).tolist())
            for member, part in zip(own, part_of[number].tolist(), strict=False)
            if member >= 0
        ),
    )
    return [*map(list, found)]


def _descending(values: Ints) -> Ints:
    return (-values).argsort(kind="stable")


def _cap(load: Load) -> int:
    if load.whole:
        return 1
    if load.cap is None:
        raise NotApplicable("it needs the most tokens of a microbatch")
    return load.cap


def _in_turn(load: Load, packs: Sequence[list[int]]) -> Replicas:
    require_applicable(
        len(packs) == load.count and all(packs),
        f"it makes {len(packs)} microbatches, not {load.count}",
    )
    return [[*packs[replica :: load.replicas]] for replica in range(load.replicas)]
