#!/usr/bin/env bash
# Finding: ELF's last stage takes the loss's gradients by the order in which losses were computed, whatever microbatch its
#   backward is of. An order that runs backward 1 before backward 0 passes ELF's check and trains on wrong gradients.
# Package: elf-pipeline 0.1.0 with torch 2.13.0. Its engine wants CUDA for streams and counters: these stand in here.
# Seen in its code: LOSS_BACKWARD pops the oldest loss from a queue and stores its gradient under its own microbatch.
#   In the same way the first stage reads the next samples for whichever forward runs next.
# Guess of a good engineer: operations name block and microbatch, so any order that respects data flow trains alike.
# Who is hurt: who gives ELF an order of their own (FixedSchedule, or a scheduler). No error, other gradients.
# Run: bash findings/elf_last_stage_takes_gradients_by_execution.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 elf-pipeline==0.1.0
cat > "$work/look.py" <<'PY'
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn


class Stream:
    def wait_stream(self, other): ...


torch.cuda.Stream = torch.cuda.current_stream = Stream
torch.cuda.stream = lambda _: contextlib.nullcontext()
torch.cuda.memory_allocated = torch.cuda.max_memory_allocated = lambda: 0
tensor = torch.tensor
torch.tensor = lambda *values, device=None, **named: tensor(*values, **named)

from elf import Pipeline
from elf.scheduling.scheduling import check_schedule_validity
from elf.scheduling.schedulers import FixedSchedule
from elf.zb_utils import replace_layer_with_layer_dw

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
dist.init_process_group("gloo", rank=0, world_size=1)
torch.manual_seed(0)
data, target = torch.randn(4, 3), torch.randn(4, 3)


def layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 3))


plain = layers()
nn.functional.mse_loss(plain(data), target).backward()
errors = {}
for name, text in {"by number": "f0 f1 b0 w0 b1 w1", "1 before 0": "f0 f1 b1 w1 b0 w0"}.items():
    order = [(op[0], 0, int(op[1])) for op in text.split()]
    check_schedule_validity(FixedSchedule({"order": order})([0], 2))
    stage = layers()
    replace_layer_with_layer_dw(stage)
    pipe = Pipeline([stage], partitioner=False, placement=[0], scheduler=FixedSchedule({"order": order}))
    pipe(data, target, nn.functional.mse_loss, split_size=2)
    errors[name] = float((stage[1].weight.grad - plain[1].weight.grad).abs().max())
    print(f"backwards {name}: ELF's check passes, gradients differ from torch's by {errors[name]:.1e}")
dist.destroy_process_group()
assert errors["by number"] < 1e-6 < 1e-3 < errors["1 before 0"], errors
print("seen: an order that passes ELF's check and runs without an error trains on other gradients")
PY
"$work/venv/bin/python" -W ignore "$work/look.py" 2> >(grep -v signatures >&2)
