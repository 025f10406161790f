"""An order in one sequence: what timing passes over, and what rearranges it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesat.core.ops import Item


@dataclass(frozen=True)
class LinearOrder:
    """An order as one dependency-respecting sequence of n items (arrays of length n).

    ``inputs[i]`` lists ``(j, delay)``: item i starts no earlier than the end of item j plus delay.
    The item before it on its device is ``before[i]`` (-1 for a device's first). The items of each
    of ``groups`` end at the same time.
    """

    device: list[int]
    item: list[Item]
    duration: list[int]
    before: list[int]
    inputs: list[tuple[tuple[int, int], ...]]
    groups: tuple[range, ...] = ()

    @cached_property
    def group_ending_with(self) -> dict[int, range]:
        """Each group by the last of its items."""
        return {group[-1]: group for group in self.groups}
