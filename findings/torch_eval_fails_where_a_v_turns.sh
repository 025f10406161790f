#!/usr/bin/env bash
# Finding: schedule.eval() of torch's zero-bubble V raises AssertionError on the rank that holds two neighbouring stages:
#   "can't steal_bwd_input if this stage doesn't have backward". step() of the same schedule runs.
# Package: torch 2.13.0 (ScheduleZBVZeroBubble, a public class; 2.15.0 does the same).
# Seen in its code: eval() switches backwards off in the stages, and leaves backward actions in the order. They do
#   nothing, but the gradient is still handed to the neighbour on the same rank.
# Guess of a good engineer: a schedule that trains also evaluates. eval() is public.
# Who is hurt: who validates during training with a V. One rank fails, the others wait until the timeout.
# Run: bash findings/torch_eval_fails_where_a_v_turns.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleZBVZeroBubble

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
dist.init_process_group("gloo", rank=0, world_size=1)
data, target = torch.randn(8, 3), torch.randn(8, 3)
layers = [torch.nn.Linear(3, 3) for _ in range(2)]
stages = [PipelineStage(layer, n, 2, torch.device("cpu")) for n, layer in enumerate(layers)]
schedule = ScheduleZBVZeroBubble(stages, 4, loss_fn=torch.nn.functional.mse_loss)
schedule.step(data, target=target)
trained = all(bool(p.grad.abs().sum() > 0) for layer in layers for p in layer.parameters())
print(f"step(): every parameter has a gradient: {trained}")
said = ""
try:
    with torch.no_grad():
        schedule.eval(data, target=target)
except AssertionError as error:
    said = str(error)
print(f"eval(): {said or 'ran'}")
dist.destroy_process_group()
assert trained
assert "steal_bwd_input" in said, said
print("seen: a schedule that trains does not evaluate on the rank where its V turns")
PY
"$work/venv/bin/python" "$work/look.py" 2> /dev/null
