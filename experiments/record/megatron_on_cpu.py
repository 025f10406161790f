"""Run the released megatron-core's own schedules on two gloo ranks, recorded by pipesat.record.

megatron-core asks CUDA for the device of its buffers and counters; there it is told "cpu". All else
is its own: the schedules, forward_step, backward_step, and what it sends.

    python megatron_on_cpu.py timeline.json --chunks 2 --record pipesat/record.py
    python megatron_on_cpu.py timers.log --chunks 2

Without ``--record``, the file is the log of its own timers at level 2, option "all".
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from types import SimpleNamespace

import torch
from torch import distributed, multiprocessing, nn

WIDTH, TOKENS, RANKS, MICROBATCHES, STEPS = 256, 128, 2, 8, 9


class Stage(nn.Module):
    """What Megatron wants of a model: a place to put the input that came from the rank before."""

    def __init__(self, layers: int, config: SimpleNamespace) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
                for _ in range(layers)
            )
        )
        self.config, self.input = config, None

    def set_input_tensor(self, tensors: list[torch.Tensor | None]) -> None:
        self.input = tensors[0]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(tokens if self.input is None else self.input)


def one_rank(rank: int, path: str, chunks: int, record: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"}
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment]
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    zeros = torch.zeros
    torch.zeros = lambda *a, **k: zeros(*a, **(k | {"device": "cpu"}))  # type: ignore[assignment]
    from megatron.core import ModelParallelConfig, parallel_state, timers
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import schedules

    distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    parallel_state.initialize_model_parallel(
        1, RANKS, virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None
    )
    config = ModelParallelConfig(
        pipeline_model_parallel_size=RANKS,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        pipeline_dtype=torch.float32,
        batch_p2p_comm=chunks > 1,
        batch_p2p_sync=False,
        deallocate_pipeline_outputs=False,
    )
    config.hidden_size = WIDTH
    config.calculate_per_token_loss = config.fine_grained_activation_offloading = False
    model = [Stage(1 + rank + 2 * chunk, config) for chunk in range(chunks)]
    for stage in model:
        stage.model_type = ModelType.encoder_or_decoder
    if record:
        sys.path.insert(0, os.path.dirname(record))
        import record as recorder

        recorder.record(path, skip=2, steps=STEPS - 2, clock_error=0)
    else:
        config.timers = timers.Timers(2, "all")
        logging.basicConfig(filename=path, filemode="w", level=logging.INFO, format="%(message)s")

    def forward_step(batches: object, stage: Stage) -> tuple[torch.Tensor, object]:
        del batches
        return stage(torch.ones(TOKENS, 1, WIDTH)), lambda out: (out.square().mean(), {})

    for _ in range(STEPS):
        run = schedules.get_forward_backward_func()
        run(
            forward_step_func=forward_step,
            data_iterator=[None] * chunks if chunks > 1 else None,
            model=model if chunks > 1 else model[0],
            num_microbatches=MICROBATCHES,
            seq_length=TOKENS,
            micro_batch_size=1,
            forward_only=False,
        )
        if not record:
            config.timers.log(["forward-compute", "backward-compute"])
    distributed.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--record", default="", help="pipesat/record.py")
    asked = parser.parse_args()
    work = partial(
        one_rank,
        path=asked.path,
        chunks=asked.chunks,
        record=asked.record and os.path.abspath(asked.record),
    )
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=work, args=[rank]) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    sys.exit(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    main()
