#!/usr/bin/env bash
# Finding: if the first stage is frozen, torch's zero-bubble schedules do not train the stage behind it. Its parameters get no
#   gradient, and nothing is raised. Interleaved 1F1B trains it.
# Package: torch 2.13.0 (ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble; 2.15.0 does the same).
# Seen in its code: the input-gradient half finds the weights of a stage on the way to its input. An input that needs no
#   gradient has no such way, and the weight half then has nothing to do. Only stage 0 is made a case of its own.
# Guess of a good engineer: freezing layers leaves the gradients of the others as they are, with any schedule.
# Who is hurt: who fine-tunes with the embedding and the first layers frozen, or a frozen encoder, and picks zero bubble. If
#   all stages up to k are frozen, it is stage k + 1 that stays as it was.
# Run: bash findings/torch_split_backward_skips_the_stage_behind_frozen_ones.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import ast
import logging
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, schedules

PLACES = {
    "ScheduleInterleaved1F1B": ([0, 2], [1, 3]),
    "ScheduleInterleavedZeroBubble": ([0, 2], [1, 3]),
    "ScheduleZBVZeroBubble": ([0, 3], [1, 2]),
}


def step(rank, name, frozen):
    """Which of this rank's stages have a gradient after a step, `frozen` stages being frozen."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4) for _ in range(4)]
    for layer in layers[:frozen]:
        layer.requires_grad_(False)
    mine = PLACES[name][rank]
    stages = [PipelineStage(layers[i], i, 4, torch.device("cpu")) for i in mine]
    schedule = getattr(schedules, name)(stages, 4, loss_fn=torch.nn.functional.mse_loss)
    given = (torch.randn(8, 4),) if 0 in mine else ()
    wanted = {"target": torch.zeros(8, 4)} if 3 in mine else {}
    schedule.step(*given, **wanted)
    return [i for i in mine if layers[i].weight.grad is not None]


def one_rank(rank, folder):
    logging.disable()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    found = {}
    for name in PLACES:
        for frozen in (0, 1, 2):
            both = [None, None]
            dist.all_gather_object(both, step(rank, name, frozen))
            found[name, frozen] = sorted(sum(both, []))
    if rank == 0:
        with open(os.path.join(folder, "found.txt"), "w") as file:
            file.write(repr(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(one_rank, (sys.argv[1],), 2)
    with open(os.path.join(sys.argv[1], "found.txt")) as file:
        found = ast.literal_eval(file.read())
    for (name, frozen), stages in found.items():
        print(f"{name}, {frozen} of 4 stages frozen: stages with gradients {stages}")
        lost = frozen > 0 and name != "ScheduleInterleaved1F1B"
        assert stages == list(range(frozen + lost, 4)), found
    print("seen: behind frozen stages, zero bubble trains one stage less than it should")
PY
"$work/venv/bin/python" -W ignore "$work/look.py" "$work"
