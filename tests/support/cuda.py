"""A stand-in for CUDA on the CPU: tensors stay on the host; events, lead and counters are there.

``with stand_in():`` for this process. ``python -m tests.support.cuda run ...`` is ``pipesat run``
under it, with gloo in NCCL's place: a rank for torchrun.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import distributed
from torch.overrides import TorchFunctionMode

from pipesat.measure.processes.meters import HostMeter

NAME = "a stand-in"
_NS_PER_CYCLE = 0.5


class _OnTheHost(TorchFunctionMode):
    """Whatever is to be made on, or to go to, the device stays on the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        named = {key: _host(value) for key, value in (kwargs or {}).items() if key != "pin_memory"}
        return func(*map(_host, args), **named)


def _host(value: Any) -> Any:
    on_device = isinstance(value, torch.device | str) and str(value).partition(":")[0] == "cuda"
    return torch.device("cpu") if on_device else value


class Device:
    """An idle device computes as the host does; one that was put to sleep is that much behind."""

    def __init__(self) -> None:
        self.behind = 0.0
        self.memory = HostMeter()
        self.memory.start()

    def sleep(self, cycles: int) -> None:
        self.behind = _NS_PER_CYCLE * cycles

    def synchronize(self) -> None:
        self.behind = 0.0

    def allocated(self) -> int:
        self.memory.add_all(())  # forget what is gone
        return sum(size for _, size in self.memory.alive.values())

    def reset_peak(self) -> None:
        self.memory.peak = self.allocated()

    def event(self, *, enable_timing: bool) -> Any:
        return _Event(self) if enable_timing else None


class _Event:
    """Reached when the device gets there: ``behind`` later than it was recorded."""

    def __init__(self, device: Device) -> None:
        self.device, self.at = device, 0.0

    def record(self) -> None:
        self.at = time.monotonic_ns() + self.device.behind

    def query(self) -> bool:
        return time.monotonic_ns() >= self.at

    def synchronize(self) -> None:
        self.device.synchronize()

    def elapsed_time(self, later: _Event) -> float:
        return (later.at - self.at) / 1e6


@contextmanager
def stand_in() -> Iterator[Device]:
    """Let torch find one device."""
    device = Device()
    there = {
        "is_available": lambda: True,
        "get_device_name": lambda *_: NAME,
        "set_device": lambda _: None,
        "Event": device.event,
        "_sleep": device.sleep,
        "synchronize": lambda *_: device.synchronize(),
        "memory_allocated": device.allocated,
        "max_memory_allocated": lambda: max(device.memory.peak, device.allocated()),
        "reset_peak_memory_stats": device.reset_peak,
    }
    with patch.multiple("torch.cuda", **there), _OnTheHost(), device.memory.computing():
        yield device


if __name__ == "__main__":
    from pipesat.cli import main

    connect = distributed.init_process_group
    distributed.init_process_group = lambda _, **options: connect("gloo", **options)
    sys.argv[0] = "pipesat"
    with stand_in():
        main()
