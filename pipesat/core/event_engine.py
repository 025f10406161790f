"""What builds orders greedily: devices that start items when events wake them; what they hold."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import count
from typing import Generic, TypeVar

from pipesat.core.ops import Item
from pipesat.core.problem import Problem
from pipesat.core.rules import memory_change

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


class DeviceMemory:
    """Memory that the items of one device hold, in the order in which they run.

    One runs after the other, so what an item frees at its end is free when the next one starts.
    ``room`` is what may be held (``None``: any amount).
    """

    __slots__ = ("held", "problem", "room")

    def __init__(self, problem: Problem, room: int | None, held: int = 0) -> None:
        self.problem, self.room, self.held = problem, room, held

    def fits(self, item: Item) -> bool:
        """Whether an item may start now."""
        room = self.room
        return room is None or self.held + memory_change(self.problem, item).at_start <= room

    def run(self, item: Item) -> None:
        """Note that an item runs."""
        self.held += memory_change(self.problem, item).net


def fits_in_order(problem: Problem, row: Iterable[Item], room: int | None, held: int = 0) -> bool:
    """Whether items fit that run one after the other, if so much is held before the first."""
    memory = DeviceMemory(problem, room, held)
    for item in row:
        if not memory.fits(item):
            return False
        memory.run(item)
    return True
