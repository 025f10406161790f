#!/usr/bin/env bash
# Finding: torch's pipeline cuts a batch that microbatches do not divide into unequal ones, without a word, and takes
#   the plain mean of their gradients. A row of a small microbatch then weighs more than one of a large one: with 10 rows
#   in 4 microbatches (3, 3, 2, 2) the gradient is none of a mean over rows. Where they divide the batch, it is.
# Package: torch 2.13.0 (torch.distributed.pipelining).
# Seen in its code: chunks are those of torch.tensor_split; gradients are divided by the number of microbatches.
# Guess of a good engineer: microbatches are a matter of speed, and training computes what the whole batch does; a batch
#   that cannot be cut evenly is refused.
# Who is hurt: whose loader keeps the last, smaller batch (drop_last=False, the default), and who gives microbatches of
#   unequal lengths to a loss that is a mean over tokens. Nothing raises, and no loss looks wrong.
# Run: bash findings/torch_unequal_microbatches_weigh_the_same.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29518")
dist.init_process_group("gloo", rank=0, world_size=1)
torch.manual_seed(0)
MICROBATCHES = 4
x, target = torch.randn(10, 4), torch.randn(10, 1)
loss = torch.nn.functional.mse_loss


def gradient(train):
    layer = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.ones_(layer.weight)
    train(layer)
    return layer.weight.grad


def differ(one, other):
    return float((one - other).abs().max() / other.abs().max())


def seen(rows):
    batch, wanted = x[:rows], target[:rows]

    def piped(layer):
        stage = PipelineStage(layer, 0, 1, torch.device("cpu"))
        Schedule1F1B(stage, MICROBATCHES, loss_fn=loss).step(batch, target=wanted)

    def mean_of_means(layer):
        parts = zip(batch.tensor_split(MICROBATCHES), wanted.tensor_split(MICROBATCHES), strict=True)
        sum(loss(layer(a), b) / MICROBATCHES for a, b in parts).backward()

    got = gradient(piped)
    whole = gradient(lambda layer: loss(layer(batch), wanted).backward())
    assert differ(got, gradient(mean_of_means)) < 1e-5, rows
    return differ(got, whole)


even, uneven = seen(8), seen(10)
print(f"seen: the gradient of 8 rows in 4 microbatches differs from the whole batch's by {even:.0e} of it, "
      f"that of 10 rows by {uneven:.0%}")
assert even < 1e-5
assert uneven > 0.05
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
