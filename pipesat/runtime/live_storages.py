"""The most bytes of tensor storages that are alive at one moment of a step.

A storage counts from the op that makes it until nothing refers to it. What kernels take for
themselves within one op is not seen. On CUDA the caching allocator counts, and sees that, too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


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
