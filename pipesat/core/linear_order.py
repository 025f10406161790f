"""An order in one sequence: what timing passes over, and what rearranges it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesat.core.ops import Copy, Item


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
