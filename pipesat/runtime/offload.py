"""Activations that leave the device between forward and backward: one *trip* per microbatch.

While a stage's forward runs, autograd hands every tensor that it saves to the trip. The copy out
writes their storages to a file and lets them go; the copy back makes them again; the backward sees
the tensors as they were. Several views of one storage are one copy. What is there anyway stays
where it is: parameters, buffers, the stage's input, and its output, which the runtime holds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from pipesat.core.errors import BadInput, RunFailed

_AT_ONCE: Final = 1 << 26  # bytes per call of the operating system

OnStorage = Callable[[Any], object]
"""Told of every storage that a copy back makes."""


@dataclass
class _Stored:
    """One storage: there, or in the file from ``place`` on."""

    storage: Any
    size: int
    device: Any
    stays: bool = False
    place: int = -1


@dataclass
class _View:
    """What autograd keeps in a saved tensor's stead."""

    stored: _Stored
    dtype: Any
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass
class Trip:
    """One (stage, microbatch): what its forward saved, wherever it is.

    ``staying`` are data pointers of storages that are not copied.
    """

    name: str
    staying: frozenset[int]
    stored: dict[int, _Stored] = field(default_factory=dict)
    file: Any = None

    def pack(self, tensor: Any) -> Any:
        """Take a tensor that autograd saves (hook of ``saved_tensors_hooks``)."""
        if not _is_plain(tensor) or tensor.untyped_storage().data_ptr() in self.staying:
            return tensor
        storage = tensor.untyped_storage()
        stored = self.stored.setdefault(
            storage.data_ptr(), _Stored(storage, storage.nbytes(), tensor.device)
        )
        return _View(stored, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride())

    def unpack(self, packed: Any) -> Any:
        """Give autograd its tensor back.

        Raises
        ------
        RunFailed
            If it is not there: its copy back has not run.
        """
        if not isinstance(packed, _View):
            return packed
        if packed.stored.storage is None:
            raise RunFailed(f"{self.name}: the backward needs what was not copied back")
        empty = torch.empty(0, dtype=packed.dtype, device=packed.stored.device)
        return empty.set_(packed.stored.storage, packed.offset, packed.shape, packed.stride)

    def keep(self, tensors: Iterable[Any]) -> None:
        """Leave the storages of these tensors where they are."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and _is_plain(tensor):
                stored = self.stored.get(tensor.untyped_storage().data_ptr())
                if stored is not None:
                    stored.stays = True

    @property
    def copied(self) -> int:
        """Bytes that leave the device."""
        return sum(stored.size for stored in self._leaving)

    @property
    def _leaving(self) -> list[_Stored]:
        return [stored for stored in self.stored.values() if not stored.stays]

    def out(self) -> None:
        """Write the storages to a file and let them go.

        Raises
        ------
        BadInput
            If one is not in the host's memory.
        """
        for stored in self._leaving:
            if stored.device.type != "cpu":
                raise BadInput(
                    f"{self.name}: offloading is for the CPU so far, untested on a GPU, and a "
                    f"saved tensor is on {stored.device}: take modes that recompute"
                )
        self.file = tempfile.TemporaryFile(buffering=0, prefix="pipesat-")  # noqa: SIM115  until the copy back
        place = 0
        for stored in self._leaving:
            _transfer(os.pwrite, self.file.fileno(), _bytes_of(stored.storage), place)
            stored.place, stored.storage = place, None
            place += stored.size

    def back(self, on_storage: OnStorage) -> None:
        """Make the storages again and read them from the file, which is then gone."""
        for stored in self._leaving:
            storage = torch.UntypedStorage(stored.size)
            on_storage(storage)
            _transfer(_pread, self.file.fileno(), _bytes_of(storage), stored.place)
            stored.storage = storage
        self.file.close()
        self.stored.clear()  # autograd alone has them now, and lets each go when it may


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor is a strided one with bytes of its own."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.untyped_storage().nbytes() > 0
    )


def _bytes_of(storage: Any) -> memoryview:
    flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return memoryview(flat.numpy())


def _pread(file: int, into: memoryview, place: int) -> int:
    return os.preadv(file, [into], place)


def _transfer(
    call: Callable[[int, memoryview, int], int], file: int, data: memoryview, place: int
) -> None:
    done = 0
    while done < len(data):
        moved = call(file, data[done : done + _AT_ONCE], place + done)
        if not moved:
            raise RunFailed("an offloaded file ended early")
        done += moved
