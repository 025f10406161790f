#!/usr/bin/env bash
# Finding: the first step() of torch's pipeline runtime runs each stage's module once more than there are microbatches, in
#   training mode. Behind the first stage the input is uninitialised memory. What a forward counts is off by one.
# Package: torch 2.13.0 (PipelineStage given no shapes; GPipe, 1F1B, interleaved and ZBV).
# Seen in its code: stage.py's _forward_metadata_inference calls the real module to learn the shapes of its outputs.
# Guess of a good engineer: shapes are inferred on meta tensors, or on a copy, and change nothing.
# Who is hurt: who has state in forwards: batch norm, the counts of tokens by which experts are balanced, random numbers
#   drawn in dropout. Running averages keep what was read.
# Run: bash findings/torch_first_step_runs_one_more_forward.sh   (some 250 MB of downloads, a minute)
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
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29520")
dist.init_process_group("gloo", rank=0, world_size=1)
MICROBATCHES, CPU = 4, torch.device("cpu")
layers = [nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(2)]
stages = [PipelineStage(layer, n, 2, CPU) for n, layer in enumerate(layers)]
schedule = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=nn.functional.mse_loss)
counts = []
for _ in range(2):
    schedule.step(torch.randn(8, 3), target=torch.randn(8, 3))
    counts.append([int(layer[1].num_batches_tracked) for layer in layers])
print(f"batches that each stage's batch norm has counted, after one and two steps of {MICROBATCHES}: {counts}")
dist.destroy_process_group()
assert counts == [[MICROBATCHES + 1] * 2, [2 * MICROBATCHES + 1] * 2], counts
print("seen: one forward more than microbatches, in the first step alone, and state keeps it")
PY
"$work/venv/bin/python" "$work/look.py" 2> /dev/null
