#!/usr/bin/env bash
# Finding: a middle stage that runs the same block twice (shared weights) trains with a whole backward. With a split one
#   (zero bubble), torch's pipeline runtime raises in W: the graph has been freed. A lone linear layer may run twice.
# Package: torch 2.13.0 (torch.distributed.pipelining).
# Seen in its code: W walks the graph once for each group of parameters, and frees it as it goes. Several layers that are used
#   twice have groups whose ways meet.
# Guess of a good engineer: autograd adds up the gradients of a shared weight, whoever walks the graph.
# Who is hurt: ALBERT-like, looped and recurrent-depth models, and who ties two layers of one stage.
# Run: bash findings/torch_split_backward_fails_where_a_block_repeats.sh   (some 250 MB of downloads, a minute)
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
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29518")
dist.init_process_group("gloo", rank=0, world_size=1)
ORDERS = {"whole": "0F0,1F0,2F0,2B0,1B0,0B0", "split": "0F0,1F0,2F0,2I0,1I0,0B0,2W0,1W0"}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(4), torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def trains(stage, order):
    layers = torch.nn.Linear(4, 4), stage, torch.nn.Linear(4, 4)
    stages = [PipelineStage(one, i, 3, torch.device("cpu")) for i, one in enumerate(layers)]
    schedule = _PipelineScheduleRuntime(stages, 1, loss_fn=torch.nn.functional.mse_loss)
    with open(sys.argv[1], "w") as file:
        file.write(order + "\n")
    schedule._load_csv(sys.argv[1])
    try:
        schedule.step(torch.randn(2, 4), target=torch.zeros(2, 4))
    except RuntimeError as error:
        assert "second time" in str(error.__cause__ or error), error
        return False
    return True


block, linear = Block(), torch.nn.Linear(4, 4)
stages = {
    "block": block,
    "block twice": torch.nn.Sequential(block, block),
    "two blocks": torch.nn.Sequential(Block(), Block()),
    "linear twice": torch.nn.Sequential(linear, torch.nn.ReLU(), linear),
}
seen = {name: [kind for kind in ORDERS if trains(one, ORDERS[kind])] for name, one in stages.items()}
print("seen: trains with a backward that is", "; ".join(f"{k}: {' or '.join(v)}" for k, v in seen.items()))
assert seen.pop("block twice") == ["whole"], seen
assert [*seen.values()] == 3 * [["whole", "split"]], seen
PY
"$work/venv/bin/python" -W ignore "$work/look.py" "$work/order.csv"
