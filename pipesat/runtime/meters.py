"""Clocks and memory meters: one pair for the CPU, one for CUDA, with the same interface.

A clock hands out marks and, at the end, the microseconds between them. A meter tells, for the code
inside ``with meter.op() as reading``, by how much more (or less) memory is taken at its end, and
the most that was taken in between, both in bytes relative to its start.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

_LEAD_CYCLES = 20_000_000  # some 10 ms of a GPU: in that time the host enqueues a microbatch
_LONGEST_LEAD = 2_560_000_000  # some 1.3 s: if that is too short, the ops wait for the device


@dataclass
class Reading:
    """Bytes relative to the start of what was metered."""

    change: int = 0
    peak: int = 0


class OpClock(Protocol):
    """Marks moments; durations are read off when everything is done.

    ``host_bound`` says whether the device waited for the host between marks, so that durations
    include launches; who reads it sets it to false.
    """

    host_bound: bool

    def lead(self) -> None:
        """Prepare a sequence of marks."""

    def mark(self) -> Any:
        """Remember this moment of the device."""

    def durations(self, marks: Sequence[Any]) -> list[float] | None:
        """Microseconds between consecutive marks; waits for the device.

        ``None`` if they say nothing: then make the whole sequence again.
        """


class Meter(Protocol):
    """Counts the device's memory."""

    def op(self) -> Any:
        """Context manager that yields a :class:`Reading`, complete when it is left."""


class HostClock:
    """Wall clock of the CPU, on which ops end when they return."""

    host_bound = False

    def lead(self) -> None:
        """Nothing to prepare."""

    def mark(self) -> int:
        """Nanoseconds now."""
        return time.perf_counter_ns()

    def durations(self, marks: Sequence[int]) -> list[float] | None:
        """Microseconds between consecutive marks."""
        return [(b - a) / 1000 for a, b in pairwise(marks)]


class CudaClock:
    """CUDA events on the current stream.

    A pipeline rank's host runs ahead of its GPU. ``lead`` occupies the GPU, so that the ops of one
    microbatch are enqueued before the first starts, and no event waits for the host. A lead that
    has ended before everything was enqueued was too short: the next one is twice as long.
    """

    def __init__(self) -> None:
        self.host_bound = False
        self.cycles = _LEAD_CYCLES

    def lead(self) -> None:
        """Occupy the GPU for a while."""
        torch.cuda.synchronize()
        if hasattr(torch.cuda, "_sleep"):  # private: without it, launch times count along
            torch.cuda._sleep(self.cycles)

    def mark(self) -> Any:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def durations(self, marks: Sequence[Any]) -> list[float] | None:
        """Microseconds between consecutive events; ``None`` if the lead was too short."""
        overtaken = marks[0].query()
        torch.cuda.synchronize()
        if overtaken and not self.host_bound:
            self.cycles *= 2
            if self.cycles <= _LONGEST_LEAD and hasattr(torch.cuda, "_sleep"):
                return None
            self.cycles, self.host_bound = _LEAD_CYCLES, True
        return [a.elapsed_time(b) * 1000 for a, b in pairwise(marks)]


class HostMeter:
    """Every allocation that torch's CPU allocator reports to its profiler."""

    @contextmanager
    def op(self) -> Iterator[Reading]:
        """Add up allocations and frees in the order of their times."""
        reading = Reading()
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it prints a line per start otherwise
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            yield reading
        events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
        for event in sorted(events, key=lambda e: e.start_ns()):
            reading.change += event.nbytes()
            reading.peak = max(reading.peak, reading.change)


class CudaMeter:
    """The caching allocator's counters, which the host changes as it enqueues: no waiting."""

    @contextmanager
    def op(self) -> Iterator[Reading]:
        """Compare the counters before and after."""
        reading = Reading()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield reading
        reading.change = torch.cuda.memory_allocated() - before
        reading.peak = max(torch.cuda.max_memory_allocated() - before, 0)


class StepMeter(Protocol):
    """Counts from its start; ``peak`` is in bytes."""

    peak: int

    def start(self) -> None: ...  # noqa: D102
    def computing(self) -> Any: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


class LiveStorages:
    """Storages on the CPU: those there at the start, and all that ops under ``computing`` make."""

    def __init__(self) -> None:
        self.peak = 0
        self.at_start = 0
        self.alive: dict[int, tuple[Any, int]] = {}
        self.mode = _Watch(self)
        self.counting = False

    def start(self) -> None:
        """Count what is there."""
        gc.collect()
        self.alive.clear()
        self.peak, self.counting = 0, True
        self.add_all(_tensors_alive())
        self.at_start = self.peak

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Watch every op inside."""
        if not self.counting:
            yield
            return
        with self.mode:
            yield

    def add_all(self, tensors: Iterable[Any]) -> None:
        """Count the storages of tensors."""
        for tensor in tensors:
            if _is_counted(tensor):
                self._note(tensor.untyped_storage())
        self._poll()

    def stop(self) -> None:
        """Count no more."""
        self.counting = False
        self.alive.clear()

    def _note(self, storage: Any) -> None:
        reference = StorageWeakRef(storage)
        self.alive[reference.cdata] = reference, storage.nbytes()

    def _poll(self) -> None:
        gone = [key for key, (storage, _) in self.alive.items() if storage.expired()]
        for key in gone:
            del self.alive[key]
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))


class _Watch(TorchDispatchMode):
    """Tells a meter of every tensor that an op returns."""

    def __init__(self, meter: LiveStorages) -> None:
        super().__init__()
        self.meter = meter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        made = func(*args, **(kwargs or {}))
        self.meter.add_all(x for x in tree_iter(made) if isinstance(x, torch.Tensor))
        return made


class CudaStepMeter:
    """The caching allocator's own peak."""

    peak = 0

    def start(self) -> None:
        """Forget the peak so far."""
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Nothing to watch."""
        yield

    def stop(self) -> None:
        """Read the peak."""
        torch.cuda.synchronize()
        self.peak = int(torch.cuda.max_memory_allocated())


def _is_counted(tensor: Any) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not isinstance(tensor, torch._subclasses.FakeTensor)
    )


def _tensors_alive() -> Iterator[Any]:
    """Tensors that Python knows, and the gradients of these."""
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            yield thing
            if thing.is_leaf and thing.grad is not None:
                yield thing.grad
