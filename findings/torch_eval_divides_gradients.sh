#!/usr/bin/env bash
# Finding: in torch's pipeline runtime, schedule.eval(), a pass without backwards, divides every .grad that is
#   there by the number of microbatches.
# Package: torch 2.13.0 (torch.distributed.pipelining, ScheduleGPipe and Schedule1F1B, scale_grads left alone).
# Seen in its code: eval() goes through the same step code as step(), whose end scales the gradients.
# Guess of a good engineer: evaluating changes no gradient, as model.eval() with no_grad does not.
# Who is hurt: who validates between two accumulated steps, or between step() and the optimizer. The update then
#   is m times too small, no error is raised.
# Run: bash findings/torch_eval_divides_gradients.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
dist.init_process_group("gloo", rank=0, world_size=1)
MICROBATCHES = 4
ratios = set()
for kind in (ScheduleGPipe, Schedule1F1B):
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    data, target = torch.randn(8, 3), torch.randn(8, 3)
    stage = PipelineStage(layer, 0, 1, torch.device("cpu"))
    schedule = kind(stage, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    schedule.step(data, target=target)
    before = layer.weight.grad.clone()
    with torch.no_grad():
        schedule.eval(data, target=target)
    ratio = (layer.weight.grad / before).unique().tolist()
    ratios.update(ratio)
    print(f"{kind.__name__}: the gradient after eval() is {ratio} of the gradient before it")
dist.destroy_process_group()
assert ratios == {1 / MICROBATCHES}, ratios
print(f"seen: eval() divided the gradients of step() by {MICROBATCHES}, the number of microbatches")
PY
"$work/venv/bin/python" "$work/look.py"
