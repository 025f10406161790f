"""One clock and one meter of memory for the CPU, one each for CUDA, with the same interface.

A clock hands out marks; what lies between them is read off when everything is done. A meter tells
by how much more (or less) memory is taken at the end of what is metered, and the most that was
taken in between, in bytes.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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


class HostClock:
    """The host's monotonic clock, one for all processes of a machine; ops end when they return.

    ``calls_block`` says whether the call that starts a transfer keeps the device from computing,
    ``host_bound`` whether the device waited for the host between marks, so that durations include
    launches; who reads it sets it to false.
    """

    calls_block = True
    host_bound = False

    def begin(self, *, lead: bool = False) -> None:
        """Begin a sequence of marks; with ``lead``, the host may run ahead of the device."""

    def mark(self) -> Any:
        """Remember this moment of the device."""
        return time.monotonic_ns()

    def nanoseconds(self, mark: Any) -> int:
        """Return when a mark was reached, on the host's clock."""
        return int(mark)

    def durations(self, marks: Sequence[Any]) -> list[float] | None:
        """Microseconds between consecutive marks; waits for the device.

        ``None`` if they say nothing: then make the whole sequence again.
        """
        return [(b - a) / 1000 for a, b in pairwise(marks)]


class CudaClock(HostClock):
    """CUDA events on the current stream, tied to the host's clock where a sequence begins.

    A pipeline rank's host runs ahead of its GPU. A lead occupies the GPU, so that the ops of one
    microbatch are enqueued before the first starts, and no event waits for the host. A lead that
    has ended before everything was enqueued was too short: the next one is twice as long. Events
    around a call that starts a transfer say nothing: it is enqueued on another stream.
    """

    calls_block = False

    def __init__(self) -> None:
        self.cycles = _LEAD_CYCLES

    def begin(self, *, lead: bool = False) -> None:
        """Take an idle device's event and a reading of the host's clock at one time."""
        torch.cuda.synchronize()
        if lead and hasattr(torch.cuda, "_sleep"):  # private: without it, launch times count along
            torch.cuda._sleep(self.cycles)
        elif not lead:
            self.base, self.base_ns = self.mark(), time.monotonic_ns()
            torch.cuda.synchronize()

    def mark(self) -> Any:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def nanoseconds(self, mark: Any) -> int:
        """Wait for an event; return when it was reached."""
        mark.synchronize()
        return self.base_ns + round(1e6 * float(self.base.elapsed_time(mark)))

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
    """Memory of tensors on the CPU.

    Of one op, every allocation that torch's allocator reports to its profiler. Of a whole step, the
    storages alive at one moment: those there at its start, and all that ops under ``computing``
    make, each from the op that makes it until nothing refers to it. What kernels take for
    themselves within one op is not among the latter.
    """

    def __init__(self) -> None:
        self.peak = self.at_start = 0
        self.alive: dict[int, tuple[Any, int]] = {}
        self.mode = _Watch(self)
        self.counting = False

    @contextmanager
    def op(self) -> Iterator[Reading]:
        """Meter what is inside; the reading is complete when it is left."""
        reading = Reading()
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it prints a line per start otherwise
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            yield reading
        events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
        for event in sorted(events, key=lambda e: e.start_ns()):
            reading.change += event.nbytes()
            reading.peak = max(reading.peak, reading.change)

    def start(self) -> None:
        """Begin a step: count what is there."""
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
        """Count the storages of tensors, and forget those that are gone."""
        for tensor in filter(_is_counted, tensors):
            storage = StorageWeakRef(tensor.untyped_storage())
            self.alive[storage.cdata] = storage, tensor.untyped_storage().nbytes()
        self.alive = {key: one for key, one in self.alive.items() if not one[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))

    def stop(self) -> None:
        """End a step: ``peak`` has the most of it."""
        self.counting = False
        self.alive.clear()


class _Watch(TorchDispatchMode):
    """Tells a meter of every tensor that an op returns."""

    def __init__(self, meter: HostMeter) -> None:
        super().__init__()
        self.meter = meter

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.meter.add_all(x for x in tree_iter(made) if isinstance(x, torch.Tensor))
        return made


class CudaMeter(HostMeter):
    """The caching allocator's counters, which the host changes as it enqueues: no waiting.

    They see what kernels take for themselves, too.
    """

    @contextmanager
    def op(self) -> Iterator[Reading]:
        """Compare the counters before and after."""
        reading = Reading()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield reading
        reading.change = torch.cuda.memory_allocated() - before
        reading.peak = max(torch.cuda.max_memory_allocated() - before, 0)

    def start(self) -> None:
        """Forget the peak so far."""
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

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


def clock_and_meter(device: str) -> tuple[HostClock, HostMeter]:
    """Return those of ``cpu`` or ``cuda``."""
    return (CudaClock(), CudaMeter()) if device == "cuda" else (HostClock(), HostMeter())
