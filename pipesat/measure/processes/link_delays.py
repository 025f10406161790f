"""Delays between two real ranks: half the time of a message there and back.

Locally with gloo, by ``pipesat profile --measure links``; or on your machines, one rank each::

    torchrun --nnodes 2 --nproc-per-node 1 ... -m pipesat.measure.processes.link_delays links.json \
        --backend nccl --bytes 33554432
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pipesat.core.errors import BadInput, require
from pipesat.layers.profile.costs_file import samples_document
from pipesat.layers.profile.profile_file import LINKS_FORMAT, LinksModel, write_document
from pipesat.measure.processes.connection import connected, local_rank

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24)
"""Bytes of the messages, where no one asks for others."""
_SAMPLES = 20
_WARMUP = 5
_TIMEOUT = 600.0  # seconds of each communication


def measure_links(sizes: Sequence[int], device: Any) -> dict[str, Any]:
    """Send messages between ranks 0 and 1 of the default group: a ``pipesat.links/1`` document."""
    return {
        "format": LINKS_FORMAT,
        "backend": str(distributed.get_backend()),
        "torch": str(torch.__version__),
        "device_name": "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device),
        "sizes": [
            {"bytes": size, "delay": samples_document(_delays(size, device))}
            for size in sorted(set(sizes))
        ],
    }


def _delays(size: int, device: Any) -> list[float]:
    """Microseconds one way; other ranks than 0 and 1 only stand by."""
    rank = distributed.get_rank()
    message = torch.zeros(size, dtype=torch.uint8, device=device)
    delays = []
    for number in range(_WARMUP + _SAMPLES):
        distributed.barrier()
        _wait_for(device)
        begin = time.perf_counter_ns()
        if rank == 0:
            distributed.send(message, 1)
            distributed.recv(message, 1)
        elif rank == 1:
            distributed.recv(message, 0)
            distributed.send(message, 0)
        _wait_for(device)
        if number >= _WARMUP:
            delays.append((time.perf_counter_ns() - begin) / 2000)
    return delays


def _wait_for(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_as_rank(
    folder: Path, rank: int, sizes: Sequence[int], timeout: float
) -> dict[str, Any]:
    """Measure as one of two local ranks."""
    with connected(timeout, **local_rank(folder, rank, 2)):
        return measure_links(sizes, torch.device("cpu"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as one of torchrun's ranks; rank 0 writes the file."""
    parser = argparse.ArgumentParser(prog="pipesat.measure.processes.link_delays")
    parser.add_argument("output", type=Path)
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    options = parser.parse_args(arguments)
    require(
        int(os.environ.get("WORLD_SIZE", "1")) >= 2,
        "expected two ranks at least: start it with torchrun",
    )
    device = torch.device("cpu")
    if options.backend == "nccl":
        require(
            torch.cuda.is_available(),
            "nccl needs CUDA devices, and torch finds none",
            where="backend",
        )
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    with connected(_TIMEOUT, options.backend):
        document = measure_links(options.bytes, device)
        if distributed.get_rank() == 0:
            write_document(options.output, LinksModel.model_validate(document))


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        sys.exit(f"link_delays: error: {error}")
