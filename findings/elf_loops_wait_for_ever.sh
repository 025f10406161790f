#!/usr/bin/env bash
# Finding: ELF's own interleaved schedule ("megatron", stages in a loop) never ends its first step: a send and its receive
#   are posted in different process groups. Its own V ("hanayo") does not start with today's torch.
# Package: elf-pipeline 0.1.0 with torch 2.13.0. Its engine wants CUDA for streams and counters: these stand in here.
# Seen in its code: groups of all neighbouring stages are made once per stage of a rank, and a stage takes those of its
#   own turn. In a loop stage 1 of rank 1 is that rank's first, its neighbour, stage 2 of rank 0, the second. The turn of
#   a V asks for a group of a rank with itself, which torch refuses since some release after 2.8.
# Guess of a good engineer: the schedules that the package lists run in the placements that it names for them.
# Who is hurt: who trains with more than one stage per rank. A loop hangs until a timeout, without a word.
# Run: bash findings/elf_loops_wait_for_ever.sh   (some 250 MB of downloads, two minutes)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 elf-pipeline==0.1.0
cat > "$work/look.py" <<'PY'
import contextlib
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn


PLACEMENTS = {"1f1b": [0, 1], "megatron": [0, 1, 0, 1], "hanayo": [0, 1, 1, 0]}


class Stream:
    def wait_stream(self, other): ...


def step(rank, scheduler, told):
    torch.cuda.Stream = torch.cuda.current_stream = Stream
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.memory_allocated = torch.cuda.max_memory_allocated = lambda: 0
    tensor, send, sent = torch.tensor, dist.isend, []
    torch.tensor = lambda *values, device=None, **named: tensor(*values, **named)
    dist.isend = lambda *args, **named: sent.append((args, send(*args, **named)))
    from elf import Pipeline

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29519")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    placement = PLACEMENTS[scheduler]
    stages = [nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 3)) for _ in placement[::2]]
    try:
        pipe = Pipeline(stages, partitioner=False, scheduler=scheduler, placement=placement)
        pipe(torch.randn(8, 3), torch.randn(8, 3), nn.functional.mse_loss, split_size=2)
    except Exception as error:
        told.put(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    told.put("ended")
    dist.barrier()


if __name__ == "__main__":
    found = {}
    for scheduler in PLACEMENTS:
        told = processes.get_context("spawn").SimpleQueue()
        both = processes.spawn(step, (scheduler, told), nprocs=2, join=False)
        both.join(timeout=60)
        found[scheduler] = "no end within 60 s" if told.empty() else told.get()
        for process in both.processes:
            process.kill()
        print(f"{scheduler}, 2 ranks, 4 microbatches: {found[scheduler]}", flush=True)
    assert found["1f1b"] == "ended", found
    assert found["megatron"].startswith("no end"), found
    assert "duplicate entries" in found["hanayo"], found
    print("seen: of ELF's own schedules, one stage per rank ends its step; a loop waits for ever, a V is refused")
PY
"$work/venv/bin/python" -W ignore "$work/look.py" 2> >(grep -v signatures >&2)
