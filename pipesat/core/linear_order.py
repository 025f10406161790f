"""An order in one sequence: what timing passes over, and what rearranges it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pipesat.core.ops import Copy, Item

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

    @cached_property
    def group_ending_with(self) -> dict[int, range]:
        """Each group by the last of its items."""
        return {group[-1]: group for group in self.groups}

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


def last_ends(
    rows: Sequence[int],
    waits: Sequence[Waits],
    lengths: Iterable[Any],
    begin: Callable[[int], Any],
    groups: Mapping[int, range] | None = None,
) -> dict[int, Any]:
    """Return the end of every row's last item, each an array: many cases in one pass.

    Parameters
    ----------
    rows
        Row of each item: its device.
    waits, lengths
        What each item waits for and how long it takes; every item stands after those. Delays and
        lengths are numbers or arrays, one number per case.
    begin
        The least start of an item, a new array; ``None``: whatever it waits for.
    groups
        Items that end at the same time, by the last of them.
    """
    import numpy as np

    groups = groups or {}
    uses = [0] * len(waits)  # how often an item's end is still needed: by what waits, by its group
    for own in waits:
        for source, _ in own:
            uses[source] += 1
    for member in chain.from_iterable(groups.values()):
        uses[member] += 1
    kept: dict[int, Any] = {}
    last: dict[int, Any] = {}
    for number, (row, own, length) in enumerate(zip(rows, waits, lengths, strict=True)):
        end = begin(number)
        for source, delay in own:
            reach = kept[source] if delay is None else kept[source] + delay
            end = reach if end is None else np.maximum(end, reach)
            uses[source] -= 1
            if not uses[source]:
                del kept[source]
        last[row] = end = end + length
        if uses[number]:
            kept[number] = end
        if number in groups:
            for member in groups[number]:
                end = np.maximum(end, kept[member])
            for member in groups[number]:
                last[rows[member]] = kept[member] = end
    return last
