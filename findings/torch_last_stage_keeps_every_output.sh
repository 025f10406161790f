#!/usr/bin/env bash
# Finding: step() of torch's pipeline schedules keeps the last stage's output of every microbatch until the step ends, to
#   return them joined, whether or not anybody takes them. 1F1B's last stage then has all logits of the batch in memory, and
#   twice while it joins them. step(return_outputs=False) holds one.
# Package: torch 2.13.0 (torch.distributed.pipelining, Schedule1F1B; 2.15.0 does the same).
# Guess of a good engineer: the last stage of 1F1B has one microbatch in flight, so one microbatch's logits.
# Who is hurt: who trains a language model. Logits are a microbatch's largest tensor, and the stage that was to hold least
#   grows with the number of microbatches. The losses come by `losses`, so the outputs are kept for nothing.
# Run: bash findings/torch_last_stage_keeps_every_output.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import logging
import os
import weakref

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

logging.disable()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29542")
dist.init_process_group("gloo", rank=0, world_size=1)


class Head(torch.nn.Linear):
    made = None

    def forward(self, x):
        output = super().forward(x)
        self.made.append(weakref.ref(output))
        return output


def most(**options):
    """The most outputs that were alive when a loss was computed, in a second step."""
    head, alive = Head(4, 100), []
    head.made = []

    def loss(output, target):
        alive.append(sum(one() is not None for one in head.made))
        return torch.nn.functional.mse_loss(output, target)

    schedule = Schedule1F1B(PipelineStage(head, 0, 1, torch.device("cpu")), 8, loss_fn=loss)
    for _ in range(2):
        head.made.clear()
        alive.clear()
        schedule.step(torch.randn(8, 4), target=torch.zeros(8, 100), losses=[], **options)
    return max(alive)


found = most(), most(return_outputs=False)
print(f"outputs alive at once, of 8: {found[0]}; with return_outputs=False: {found[1]}")
assert found == (8, 1), found
print("seen: the last stage of 1F1B keeps 8 outputs of 8 microbatches")
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
