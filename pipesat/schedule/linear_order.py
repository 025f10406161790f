"""An order in one sequence: what timing passes over, what rearranges it, and its least span.

*Ops that end in one instant.* An order fixes what a device holds between one of its items and the
next. Where that is more than the capacity, no time may pass in between: the next item has to be one
of length zero that runs at the end of the one before it. This, and what waits for what, makes
groups of items, perhaps of several devices, that all end at the same time; every timing of the
order that keeps to memory keeps them together, and the earliest of these timings exists.

*The earliest timing of least span.* Let ``L[d, e]`` be the longest path from the start of device
d's first item to the end of device e's last one. First starts ``x`` with span T exist if and only
if ``x[e] >= x[d] + L[d, e] - T`` for all d, e, so the least T is the largest mean of a cycle of L,
rounded up (all times are integers); the least such x gives the earliest schedule of that span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from pipesat.core.arrays import ints
from pipesat.problem.problem import once
from pipesat.problem.rules import duration, memory_change, one_of_each
from pipesat.schedule.arrays_of import too_large

if TYPE_CHECKING:
    from pipesat.kernels.timing import Sequence as Arrays
    from pipesat.problem.ops import Copy, Item
    from pipesat.problem.problem import Problem


Waits: TypeAlias = Sequence[tuple[int, Any]]
"""What one item waits for: ``(j, delay)``, the end of item j plus delay; ``None`` is no delay."""


@dataclass(frozen=True)
class LinearOrder:
    """An order as one dependency-respecting sequence of n items (arrays of length n).

    ``inputs[i]`` lists ``(j, delay)``: item i starts no earlier than the end of item j plus delay.
    The item before it on its device is ``before[i]`` (-1 for a device's first). The items of each
    of ``groups`` end at the same time.

    Where there are ``copies`` (by number), they are part of the sequence, each in a row of its own
    beside the devices': with D devices, those of device d in row D + 2 d, the L's of a device with
    two channels in D + 2 d + 1. As ``item`` they have what contains the F that they copy.
    """

    device: list[int]
    item: list[Item]
    duration: list[int]
    before: list[int]
    inputs: list[tuple[tuple[int, int], ...]]
    groups: tuple[range, ...] = ()
    copies: dict[int, Copy] = field(default_factory=dict)

    @classmethod
    def of_arrays(cls, found: Arrays, items: list[Item]) -> LinearOrder:
        """Return the sequence that a loop has found, with its items."""
        waits = [*zip(found.source.tolist(), found.delay.tolist(), strict=True)]
        begin = found.begin.tolist()
        made = cls(
            device=found.device.tolist(),
            item=items,
            duration=found.duration.tolist(),
            before=found.before.tolist(),
            inputs=[tuple(waits[a:b]) for a, b in pairwise(begin)],
        )
        made.__dict__["arrays"] = found
        return made

    @cached_property
    def arrays(self) -> Arrays:
        """The same for loops; what is changed later is not in it."""
        import numpy as np  # importing pipesat stays fast

        from pipesat.kernels.timing import Sequence as Arrays

        together = ints(repeat(-1, len(self.device)))
        for group in self.groups:
            together[group[-1]] = group[0]
        return Arrays(
            item=np.arange(len(self.device)),
            device=ints(self.device),
            duration=ints(self.duration),
            before=ints(self.before),
            begin=ints(accumulate(map(len, self.inputs), initial=0)),
            source=ints(source for own in self.inputs for source, _ in own),
            delay=ints(delay for own in self.inputs for _, delay in own),
            together=together,
            reached=np.empty(0, np.int64),
        )

    @cached_property
    def waits(self) -> list[Waits]:
        """What every item waits for: the item before it on its device, and its inputs."""
        return [
            ((before, None), *inputs) if before >= 0 else inputs
            for before, inputs in zip(self.before, self.inputs, strict=True)
        ]

    def rearranged(self, order: Sequence[int], groups: Sequence[range] = ()) -> LinearOrder:
        """Return the same items in another order, some of them in groups."""
        place = {number: at for at, number in enumerate(order)} | {-1: -1}
        return LinearOrder(
            device=[self.device[n] for n in order],
            item=[self.item[n] for n in order],
            duration=[self.duration[n] for n in order],
            before=[place[self.before[n]] for n in order],
            inputs=[tuple((place[s], delay) for s, delay in self.inputs[n]) for n in order],
            groups=tuple(groups),
            copies={place[n]: copy for n, copy in self.copies.items()},
        )


def keep_together(problem: Problem, sequence: LinearOrder) -> LinearOrder:
    """Return the sequence with the groups of an order side by side.

    What cannot be kept together, because something in between takes time, stays apart: no timing of
    such an order keeps to memory, and the checker says where.
    """
    if not instants_matter(problem):
        return sequence
    joined = list(_without_time_between(problem, sequence))
    if not joined:
        return sequence
    import networkx as nx  # importing pipesat stays fast

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(sequence.item)))
    graph.add_edges_from((s, n) for n, own in enumerate(sequence.waits) for s, _ in own)
    graph.add_edges_from((after, before) for before, after in joined)
    blocks = nx.condensation(graph)
    order: list[int] = []
    groups: list[range] = []
    for block in nx.topological_sort(blocks):
        members = sorted(blocks.nodes[block]["members"])
        if len(members) > 1 and _can_end_together(sequence, set(members)):
            groups.append(range(len(order), len(order) + len(members)))
        order += members
    return sequence.rearranged(order, groups)


@once
def instants_matter(problem: Problem) -> bool:
    """Whether a device of limited memory has ops of length zero."""
    return any(
        problem.devices[problem.stages[op.stage].device].memory is not None
        and not duration(problem, op)
        for op in one_of_each(problem)
    )


def _without_time_between(problem: Problem, sequence: LinearOrder) -> Iterator[tuple[int, int]]:
    """Consecutive items of a device between which more is held than there is memory for."""
    held = [0] * len(problem.devices)
    slacks = [device.slack for device in problem.devices]
    for number, (device, item) in enumerate(zip(sequence.device, sequence.item, strict=True)):
        before, slack = sequence.before[number], slacks[device]
        if slack is None:
            continue
        if before >= 0 and held[device] > slack and not sequence.duration[number]:
            yield before, number
        held[device] += memory_change(problem, item).net


def _can_end_together(sequence: LinearOrder, members: set[int]) -> bool:
    """Whether whatever waits within the group takes no time and waits without a delay."""
    return not any(
        delay or sequence.duration[number]
        for number in members
        for source, delay in sequence.waits[number]
        if source in members
    )


def of_minimum_span(sequence: LinearOrder, devices: int) -> list[int]:
    """Earliest starts of the devices' first items among all timings of least span.

    Raises
    ------
    BadInput
        If sums of times do not fit into 64 bits.
    """
    from pipesat.kernels.arrays import UNLIMITED  # importing pipesat stays fast
    from pipesat.kernels.spans import least_span_starts

    span, starts = least_span_starts(sequence.arrays, devices, UNLIMITED)
    if span < 0:
        raise too_large()
    return starts.tolist()
