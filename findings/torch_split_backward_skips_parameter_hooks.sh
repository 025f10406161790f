#!/usr/bin/env bash
# Finding: with a split backward (zero bubble), torch's pipeline runtime never calls the hooks that
#   register_post_accumulate_grad_hook set on parameters, but for the first stage's. Those of register_hook are called.
# Package: torch 2.13.0 (torch.distributed.pipelining; 2.15.0 does the same).
# Seen in its code: W takes gradients by autograd.grad and adds them to .grad itself, so nothing is accumulated by autograd.
# Guess of a good engineer: a hook on a parameter runs whenever its .grad has been made, whatever the schedule.
# Who is hurt: who steps the optimizer, reduces, casts or offloads gradients in such a hook, which is what it was made for.
#   With 1F1B all stages do it, with zero bubble the first one alone. Gradients are there, nothing is raised.
# Run: bash findings/torch_split_backward_skips_parameter_hooks.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import logging
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

logging.disable()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29541")
dist.init_process_group("gloo", rank=0, world_size=1)
ORDERS = {"whole": "0F0,1F0,2F0,2B0,1B0,0B0", "split": "0F0,1F0,2F0,2I0,1I0,0B0,2W0,1W0"}


def called(order):
    """How often each stage's weight calls either hook in a step that gives it a gradient."""
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    before, after = [0, 0, 0], [0, 0, 0]

    def count(calls, index):
        def hook(_):
            calls[index] += 1

        return hook

    for index, layer in enumerate(layers):
        layer.weight.register_hook(count(before, index))
        layer.weight.register_post_accumulate_grad_hook(count(after, index))
    stages = [PipelineStage(one, i, 3, torch.device("cpu")) for i, one in enumerate(layers)]
    schedule = _PipelineScheduleRuntime(stages, 1, loss_fn=torch.nn.functional.mse_loss)
    with open(sys.argv[1], "w") as file:
        file.write(order + "\n")
    schedule._load_csv(sys.argv[1])
    schedule.step(torch.randn(2, 4), target=torch.zeros(2, 4))
    assert all(layer.weight.grad is not None for layer in layers)
    return before, after


found = {name: called(order) for name, order in ORDERS.items()}
print("hooks called per stage, (register_hook, register_post_accumulate_grad_hook):", found)
assert found == {"whole": ([1, 1, 1], [1, 1, 1]), "split": ([1, 1, 1], [1, 0, 0])}, found
print("seen: with a split backward two of three stages get their gradients and call no such hook")
PY
"$work/venv/bin/python" -W ignore "$work/look.py" "$work/order.csv"
