#!/usr/bin/env bash
# Finding: an order with sends and receives for torch's pipeline runtime that lacks REDUCE_GRAD is loaded and trains,
#   with gradients as many times too large as there are microbatches. Nothing is raised or warned of.
# Package: torch 2.13.0 (torch.distributed.pipelining.schedules, _load_csv with format="compute_comms").
# Seen in its code: the gradients are scaled by that action alone, also without FSDP, where nothing is to be reduced.
# Guess of a good engineer: REDUCE_GRAD is for data parallelism. Without it, it can be left out.
# Who is hurt: who edits a dump of the runtime or writes such a file. Adam hides the factor, clipping and SGD do not.
# Run: bash findings/torch_csv_without_reduce_grad.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29513")
dist.init_process_group("gloo", rank=0, world_size=1)
M, CPU = 4, torch.device("cpu")
torch.manual_seed(0)
start = torch.nn.Linear(3, 3).state_dict()
data, target = torch.randn(2 * M, 3), torch.randn(2 * M, 3)


def runtime():
    layer = torch.nn.Linear(3, 3)
    layer.load_state_dict(start)
    stage = PipelineStage(layer, 0, 1, CPU)
    return layer, _PipelineScheduleRuntime([stage], M, loss_fn=torch.nn.functional.mse_loss)


def gradient(file, kind):
    layer, schedule = runtime()
    schedule._load_csv(file, format=kind)
    schedule.step(data, target=target, losses=[])
    return layer.weight.grad


def written(name, row):
    path = os.path.join(sys.argv[1], name)
    with open(path, "w") as file:
        file.write(",".join(row) + "\n")
    return path


order = [f"0{kind}{n}" for n in range(M) for kind in "FB"]
plain = gradient(written("plain.csv", order), "compute_only")
_, schedule = runtime()
schedule._load_csv(os.path.join(sys.argv[1], "plain.csv"))
dump = os.path.join(sys.argv[1], "dump.csv")
schedule._dump_csv(dump)
row = open(dump).read().strip().split(",")
print("dump:", " ".join(row))
again = gradient(dump, "compute_comms")
without = gradient(written("without.csv", [x for x in row if "REDUCE_GRAD" not in x]), "compute_comms")
ratio = [round(float(x), 4) for x in ((again / plain).mean(), (without / plain).mean())]
print(f"gradients over those of the plain order: dump {ratio[0]}, without REDUCE_GRAD {ratio[1]}")
dist.destroy_process_group()
assert ratio == [1, M], ratio
print(f"seen: gradients {M} times too large, the number of microbatches, and no error")
PY
"$work/venv/bin/python" "$work/look.py" "$work" 2> /dev/null
