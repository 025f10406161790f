"""Connected ranks: local ones by gloo, what each of them has, how their clocks differ."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

_EXCHANGES = 30
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@contextmanager
def connected(timeout: float, backend: str = "gloo", **local: Any) -> Iterator[None]:
    """Connect a rank to the others as torchrun says, or as one of :func:`local_rank`.

    ``timeout``, in seconds, also bounds each communication. Without a ``device_id``, with which
    NCCL runs all sends and receives of a rank one after the other.
    """
    if backend == "gloo":
        torch.set_num_threads(1)
    distributed.init_process_group(backend, timeout=timedelta(seconds=timeout), **local)
    yield  # after a failure nothing is left to be ended in order
    distributed.barrier()  # no rank leaves while another still listens to it
    distributed.destroy_process_group()


def local_rank(folder: Path, rank: int, ranks: int) -> dict[str, Any]:
    """Return how a local rank finds the others: through a file in ``folder``."""
    store = distributed.FileStore(str(folder / "rendezvous"), ranks)
    return {"store": store, "rank": rank, "world_size": ranks}


def gathered(value: Any) -> list[Any]:
    """Return the values of all ranks; nothing on others than rank 0."""
    everything = [None] * distributed.get_world_size() if distributed.get_rank() == 0 else []
    distributed.gather_object(value, everything or None)
    return everything


def offsets(rank: int, ranks: int, device: str, *, ask: bool = False) -> tuple[int, int]:
    """Return what to add to this rank's clock to get rank 0's, and the largest error, in ns.

    Both are 0 where rank 0 is on the same machine, unless ``ask``. All ranks call this together.
    """
    machines: list[Any] = [None] * ranks
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    distributed.all_gather_object(machines, f"{socket.gethostname()} {boot}")
    best: tuple[int, int] = (0, 0)
    for other in range(1, ranks):
        if machines[other] == machines[0] and not ask:
            continue
        if rank == 0:
            _answer(other, device)
        elif rank == other:
            best = _ask(device)
    return best


def _answer(other: int, device: str) -> None:
    box = torch.zeros(1, dtype=torch.int64, device=device)
    for _ in range(_EXCHANGES):
        distributed.recv(box, src=other)
        box.item()  # with NCCL, recv returns before the message is there
        box[0] = time.monotonic_ns()
        distributed.send(box, dst=other)


def _ask(device: str) -> tuple[int, int]:
    box = torch.zeros(1, dtype=torch.int64, device=device)
    exchanges = []
    for _ in range(_EXCHANGES):
        asked = time.monotonic_ns()
        distributed.send(box, dst=0)
        distributed.recv(box, src=0)
        theirs = int(box.item())
        took = time.monotonic_ns() - asked
        exchanges.append((took, theirs - asked - took // 2))
    took, offset = min(exchanges)
    return offset, took // 2
