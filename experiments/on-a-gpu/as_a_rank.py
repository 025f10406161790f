"""``pipesat`` with torch 2.11, which the GPU machine had, and with ranks that share one GPU.

    torchrun --nproc-per-node 4 as_a_rank.py run PROBLEM SCHEDULE --device cuda ...

torch 2.11 opens connections between neighbouring stages by a message, also from a rank to itself,
which gloo refuses; they open by themselves. NCCL refuses two ranks on one GPU: with several ranks,
messages go through the host, by gloo. All else is as on several GPUs: order, stages, streams,
gradients, clocks, memory.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import distributed
from torch.distributed.pipelining import schedules, stage

from pipesat.cli import main


class _Arriving:
    """A message on its way to the host; who waits for it has it on the GPU."""

    def __init__(self, work: Any, here: Any, there: Any) -> None:
        self.work, self.here, self.there = work, here, there

    def wait(self) -> None:
        self.work.wait()
        if self.there is not None:
            self.there.data.copy_(self.here)  # a leaf that waits for its gradient


def _through_the_host(ops: list[Any], desc: str | None = None) -> list[Any]:
    del desc
    works = []
    for op in ops:
        sends = op.op is distributed.isend
        here = op.tensor.detach().cpu() if sends else torch.empty_like(op.tensor, device="cpu")
        works.append(_Arriving(op.op(here, op.peer), here, None if sends else op.tensor))
    return works


if __name__ == "__main__":
    stage._PipelineStageBase._get_init_p2p_neighbors_ops = lambda _: []
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "cuda" in sys.argv:
        connect = distributed.init_process_group
        distributed.init_process_group = lambda _, **options: connect("gloo", **options)
        torch.cuda.set_device = lambda _: None  # there is one
        schedules._batch_p2p = _through_the_host
        for name in ("send_object_list", "recv_object_list"):
            told = getattr(distributed, name)

            def without_device(*words: Any, told: Any = told, **options: Any) -> Any:
                return told(*words, **(options | {"device": None}))

            setattr(distributed, name, without_device)
    sys.argv[0] = "pipesat"
    main()
