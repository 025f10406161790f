#!/usr/bin/env bash
# Finding: with defer_pp_recv=True, an argument of torch's schedules for several stages a rank, the zero-bubble V and DualPipeV
#   train on gradients that are off by two to five times their size. Nothing is raised. Interleaved schedules stay right.
# Package: torch 2.13.0 (torch.distributed.pipelining, gloo, 4 ranks of 2 stages each, 8 microbatches).
# Seen in its code: it moves each receive down to the op that needs it. In a V a rank receives from one neighbour both
#   activations and gradients of two stages, sends have no tags, and the order of receives is no longer that of the sends.
# Guess of a good engineer: an option that moves receives changes when a tensor arrives, not which one. Its docstring speaks
#   of deadlocks alone, and rules them out.
# Who is hurt: who turns it on where early receives block other kernels, which is what it is for. All tensors have one shape, so
#   they fit wherever they land, and the loss is a number.
# Run: bash findings/torch_deferred_receives_mix_up_a_v.sh   (some 250 MB of downloads, a minute)
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

RANKS, MICROBATCHES = 4, 8
STAGES = 2 * RANKS
LOOPS = ("ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble")
VEES = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
loss = torch.nn.functional.mse_loss


def off(rank, name, defer):
    """Largest difference of this rank's gradients from the whole model's, as a share of them."""
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(STAGES)]
    x, target = torch.randn(2 * MICROBATCHES, 8), torch.randn(2 * MICROBATCHES, 8)
    mine = [rank, rank + RANKS] if name in LOOPS else [rank, STAGES - 1 - rank]
    stages = [PipelineStage(layers[i], i, STAGES, torch.device("cpu")) for i in mine]
    schedule = getattr(schedules, name)(stages, MICROBATCHES, loss_fn=loss, defer_pp_recv=defer)
    given = (x,) if 0 in mine else ()
    wanted = {"target": target} if STAGES - 1 in mine else {}
    schedule.step(*given, **wanted)
    weights = [layers[i][0].weight for i in mine]
    piped = [weight.grad.clone() for weight in weights]
    for layer in layers:
        layer.zero_grad()
    loss(torch.nn.Sequential(*layers)(x), target).backward()
    pairs = zip(piped, weights, strict=True)
    return max(float((got - own.grad).norm() / own.grad.norm()) for got, own in pairs)


def one_rank(rank, folder):
    logging.disable()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS)
    found = {}
    for name in (*LOOPS, *VEES):
        for defer in (False, True):
            each = [None] * RANKS
            dist.all_gather_object(each, off(rank, name, defer))
            found[name, defer] = max(each)
    if rank == 0:
        with open(os.path.join(folder, "found.txt"), "w") as file:
            file.write(repr(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(one_rank, (sys.argv[1],), RANKS)
    with open(os.path.join(sys.argv[1], "found.txt")) as file:
        found = ast.literal_eval(file.read())
    for (name, defer), value in found.items():
        print(f"{name}, defer_pp_recv={defer}: gradients are off by {value:.0e} of themselves")
        assert value > 0.5 if defer and name in VEES else value < 1e-5, found
    print("seen: deferred receives change the gradients of a V")
PY
"$work/venv/bin/python" -W ignore "$work/look.py" "$work"
