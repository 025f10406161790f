#!/usr/bin/env bash
# Finding: with activation checkpointing, torch's zero-bubble schedules run a checkpointed forward once for the input
#   gradient and once more per group of parameters: four times for a norm and two linear layers, where 1F1B runs it once.
# Package: torch 2.13.0 (ScheduleZBVZeroBubble; checkpoint with use_reentrant=False).
# Seen in its code: stage_backward_weight calls autograd.grad per group of parameters, and a checkpoint recomputes for each
#   such call. torchtitan's issue 773 reports the slowness.
# Guess of a good engineer: the forward is recomputed once, or twice at most, as the backward has two halves.
# Who is hurt: who turns both on to fit a model. Each further group of a checkpointed layer costs one more forward. The
#   gradients are right, so nothing shows but the time.
# Run: bash findings/torch_split_backward_recomputes_per_parameter_group.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble
from torch.utils.checkpoint import checkpoint

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29519")
dist.init_process_group("gloo", rank=0, world_size=1)
MICROBATCHES, CPU = 4, torch.device("cpu")
data, target = torch.randn(8, 3), torch.randn(8, 3)


class Layer(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 3))
        self.again, self.runs = again, 0

    def counted(self, x):
        self.runs += 1
        return self.inner(x)

    def forward(self, x):
        return checkpoint(self.counted, x, use_reentrant=False) if self.again else self.counted(x)


def runs(kind, again):
    """How often a step runs the second stage's forward."""
    layers = [Layer(again) for _ in range(2)]
    stages = [PipelineStage(layer, n, 2, CPU) for n, layer in enumerate(layers)]
    kind(stages, MICROBATCHES, loss_fn=nn.functional.mse_loss).step(data, target=target)
    return layers[1].runs


found = {}
for kind in (ScheduleInterleaved1F1B, ScheduleZBVZeroBubble):
    warm = 1  # torch's inference of shapes runs each stage forward (and, with a checkpoint, backward) once
    plain, again = runs(kind, False) - warm, runs(kind, True) - 2 * warm
    found[kind.__name__] = (again - plain) / MICROBATCHES
print(f"forwards recomputed per microbatch: {found}")
dist.destroy_process_group()
assert found == {"ScheduleInterleaved1F1B": 1, "ScheduleZBVZeroBubble": 4}, found
print("seen: a checkpointed layer with three groups of parameters is recomputed four times")
PY
"$work/venv/bin/python" "$work/look.py" 2> /dev/null
