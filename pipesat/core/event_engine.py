"""Devices that start items when events wake them: what builds orders greedily shares this."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

_EVENTS_PER_LOOK = 1000  # between two questions whether to give up

ItemT = TypeVar("ItemT")


class EventEngine(ABC, Generic[ItemT]):
    """Lists are indexed by device: what each has run, and when it falls idle.

    Of events at one instant, those of lower devices come first.
    """

    def __init__(self, devices: int) -> None:
        self.rows: list[list[ItemT]] = [[] for _ in range(devices)]
        self.busy_until = [0] * devices
        self.events = [(0, device) for device in range(devices)]

    @abstractmethod
    def step(self, device: int, now: int) -> bool:
        """Start an item on an idle device; whether to ask again if it is still idle."""

    def wake(self, device: int, time: int) -> None:
        """Let a device look again at a time for what it could start."""
        heapq.heappush(self.events, (time, device))

    def occupy(self, device: int, item: ItemT, end: int) -> None:
        """Let an idle device run an item until its end."""
        self.rows[device].append(item)
        self.busy_until[device] = end
        heapq.heappush(self.events, (end, device))

    def run(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Run until nothing is left to do; ``False`` if told to give up."""
        events, busy_until = self.events, self.busy_until
        for turn in count():
            if not events:
                break
            if turn % _EVENTS_PER_LOOK == 0 and give_up():
                return False
            now, device = heapq.heappop(events)
            while events and events[0] == (now, device):
                heapq.heappop(events)
            while busy_until[device] <= now and self.step(device, now):
                pass
        return True
