"""A problem and its orders as arrays of integers: what loops run over.

A *cell* is one microbatch on one stage. Cells are numbered stage after stage. A *variant* is a
class of microbatches on a stage in one memory mode: all of a variant take the same times and
memory, which rows of tables say. Kinds of ops are numbered F 0, B 1, W 2, BW 3.

An op's code is ``cell << shift | mode << 2 | kind``. In an order an item has the codes of its
members, the second one -1 where an op is alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from pipesat.kernels.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
else:
    Ints = Floats = Any

F, B, W, BW = range(4)
NONE: Final = -1
UNLIMITED: Final = 1 << 61
"""Slack of a device without a capacity."""

NO_PAIR, BY_TIME, BY_FACTOR, BY_LONGER = range(4)


class ProblemArrays(NamedTuple):
    """A problem with S stages, D devices, C cells, V variants; all arrays are of int64.

    Attributes
    ----------
    device, previous, following, route, place, microbatches, place_on_device
        By stage: its device, the stages before and after it on a chain (-1: none), its route and
        place there, how many microbatches pass it, and its place among its device's stages.
    first_cell
        By stage, and at the end the number of cells.
    stage_of, variant_of
        By cell: its stage, and the variant in mode 0; mode k's is k rows further.
    begin, source, delay
        The end of a cell's forward is event ``2 * cell``, that of its backward ``2 * cell + 1``.
        From ``begin[e]`` to ``begin[e + 1]``: the events for which the op waits whose end is event
        e, and how long each of these inputs travels.
    shift
        Bits of a code below the cell.
    time, taken, net
        By variant and kind: time; memory taken at the start; what is held more at the end. Copies
        count as done at once.
    copied
        By variant: 1 where its microbatches are offloaded.
    slack
        By device, :data:`UNLIMITED` where it has no capacity.
    pair_by, pair_num, pair_den
        By device, and by place on it times 4 plus kind of two ops, in either order: how the time of
        the two together is said (:func:`time_together`), and the numbers that say it.
    """

    device: Ints
    previous: Ints
    following: Ints
    route: Ints
    place: Ints
    microbatches: Ints
    place_on_device: Ints
    first_cell: Ints
    stage_of: Ints
    variant_of: Ints
    begin: Ints
    source: Ints
    delay: Ints
    shift: int
    time: Ints
    taken: Ints
    net: Ints
    copied: Ints
    slack: Ints
    pair_by: Ints
    pair_num: Ints
    pair_den: Ints


class Coded(NamedTuple):
    """An order of n items as codes: the items of device d are ``begin[d]`` to ``begin[d + 1]``."""

    first: Ints
    second: Ints
    begin: Ints


@compiled
def variant(a: ProblemArrays, code: int) -> int:
    """Return the variant of an op: its row in tables."""
    return a.variant_of[code >> a.shift] + mode_of(a, code)


@compiled
def mode_of(a: ProblemArrays, code: int) -> int:
    """Return the mode of an op, by its number."""
    return (code & (1 << a.shift) - 1) >> 2


@compiled
def time_together(a: ProblemArrays, one: int, other: int) -> int:
    """Time of two ops of one device that run as one, by their codes; -1 if their kinds may not."""
    here, there = a.stage_of[one >> a.shift], a.stage_of[other >> a.shift]
    device = a.device[here]
    if a.device[there] != device or len(a.pair_by) == 0:
        return NONE
    kind, kind_there = one & 3, other & 3
    p = a.place_on_device[here] * 4 + kind
    q = a.place_on_device[there] * 4 + kind_there
    by, num = a.pair_by[device, p, q], a.pair_num[device, p, q]
    if by == NO_PAIR:
        return NONE
    row, row_there = variant(a, one), variant(a, other)
    if by == BY_TIME:  # a time is of the stages' own ops, beside which copies may run
        moded = mode_of(a, one) and not a.copied[row]
        moded_there = mode_of(a, other) and not a.copied[row_there]
        if moded or moded_there:
            return NONE
    alone, alone_there = a.time[row, kind], a.time[row_there, kind_there]
    return pair_time(by, num, a.pair_den[device, p, q], alone, alone_there)


@compiled
def pair_time(by: int, num: int, den: int, alone: int, alone_there: int) -> int:
    """Time of two ops that run as one, as it is said of their kinds, from their times alone."""
    if by == BY_TIME:
        return num
    together = -(-(alone + alone_there) * num // den)
    if by == BY_FACTOR:
        return max(1, together)
    return max(together, alone, alone_there)


@compiled
def in_devices_order(items: Ints, counts: Ints, device: Ints) -> Coded:
    """Return ranks' rows of ops, each as far as it is in use, as an order of their devices.

    ``items`` has shape (ranks, longest row); ``device`` is by rank, and each has one.
    """
    devices, at = len(device), 0
    begin, rank_of = np.zeros(devices + 1, np.int64), np.empty(devices, np.int64)
    first = np.empty(counts.sum(), np.int64)
    for rank in range(devices):
        rank_of[device[rank]] = rank
    for place in range(devices):
        for number in range(counts[rank_of[place]]):
            first[at] = items[rank_of[place], number]
            at += 1
        begin[place + 1] = at
    return Coded(first, np.full(at, NONE, np.int64), begin)
