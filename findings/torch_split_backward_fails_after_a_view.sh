#!/usr/bin/env bash
# Finding: a middle stage whose output is a view (it ends in reshape, transpose or an index) trains with a whole
#   backward. With the same stage and a split one (zero bubble), torch's pipeline runtime raises in the first backward.
# Package: torch 2.13.0 (torch.distributed.pipelining).
# Seen in its code: the split backward detaches the stage's outputs in place, which torch forbids for views.
# Guess of a good engineer: a schedule only reorders work. What trains with 1F1B trains with zero bubble.
# Who is hurt: whose layers end in .view(batch, length, width) or .transpose(0, 1), as attention and sequence-first models do.
#   .contiguous() does not help where the view is contiguous already, .clone() does.
# Run: bash findings/torch_split_backward_fails_after_a_view.sh   (some 250 MB of downloads, a minute)
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
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
dist.init_process_group("gloo", rank=0, world_size=1)
ORDERS = {"whole": "0F0,1F0,2F0,2B0,1B0,0B0", "split": "0F0,1F0,2F0,2I0,1I0,0B0,2W0,1W0"}
ENDS = {
    "plain": lambda y: y,
    "reshape": lambda y: y.reshape(2, 4),
    "reshape, contiguous": lambda y: y.reshape(2, 4).contiguous(),
    "reshape, clone": lambda y: y.reshape(2, 4).clone(),
    "transpose": lambda y: y.T.T,
    "index": lambda y: y[:],
}


class Layer(torch.nn.Module):
    def __init__(self, end):
        super().__init__()
        self.linear, self.end = torch.nn.Linear(4, 4), end

    def forward(self, x):
        return self.end(self.linear(x))


def trains(end, order):
    layers = torch.nn.Linear(4, 4), Layer(end), torch.nn.Linear(4, 4)
    stages = [PipelineStage(one, i, 3, torch.device("cpu")) for i, one in enumerate(layers)]
    schedule = _PipelineScheduleRuntime(stages, 1, loss_fn=torch.nn.functional.mse_loss)
    with open(sys.argv[1], "w") as file:
        file.write(order + "\n")
    schedule._load_csv(sys.argv[1])
    try:
        schedule.step(torch.randn(2, 4), target=torch.zeros(2, 4))
    except RuntimeError as error:
        assert "detach views in-place" in str(error.__cause__ or error), error
        return False
    return True


seen = {name: [kind for kind in ORDERS if trains(end, ORDERS[kind])] for name, end in ENDS.items()}
print("seen: trains with a backward that is", "; ".join(f"{k}: {' or '.join(v)}" for k, v in seen.items()))
both, whole = ["whole", "split"], ["whole"]
assert [*seen.values()] == [both, whole, whole, both, whole, whole], seen
PY
"$work/venv/bin/python" -W ignore "$work/look.py" "$work/order.csv"
