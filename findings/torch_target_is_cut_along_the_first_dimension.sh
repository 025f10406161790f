#!/usr/bin/env bash
# Finding: args_chunk_spec says along which dimension torch's pipeline cuts inputs, output_merge_spec how it joins outputs. The
#   target is cut along the first dimension, whatever they say. For sequence-first tensors and a loss that flattens, sizes still
#   fit: tokens are trained towards the targets of others.
# Package: torch 2.13.0 (torch.distributed.pipelining).
# Seen in its code: step() splits the target by torch.tensor_split, which is given no dimension.
# Guess of a good engineer: the target is cut as the inputs are, or step() asks for a spec of its own.
# Who is hurt: who has (length, batch) inputs. The loss is finite and starts at the right value, log of the vocabulary; the
#   gradient is off by its own size, so no better than none. Transposed to batch-first, it is the whole batch's.
# Run: bash findings/torch_target_is_cut_along_the_first_dimension.sh   (some 250 MB of downloads, a minute)
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
from torch.distributed.pipelining.microbatch import TensorChunkSpec

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29519")
dist.init_process_group("gloo", rank=0, world_size=1)
torch.manual_seed(0)
LENGTH, BATCH, WORDS = 6, 8, 5
x, target = torch.randn(LENGTH, BATCH, 4), torch.randint(WORDS, (LENGTH, BATCH))


def loss(logits, wanted):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def gradient(train):
    layer = torch.nn.Linear(4, WORDS, bias=False)
    torch.nn.init.zeros_(layer.weight)
    train(layer)
    return layer.weight.grad


def piped(dimension):
    """Gradient with two microbatches, the batch being a tensor's dimension of that number."""
    spec = TensorChunkSpec(dimension)
    given, wanted = (x, target) if dimension == 1 else (x.transpose(0, 1), target.T)

    def train(layer):
        stage = PipelineStage(layer, 0, 1, torch.device("cpu"))
        how = {"args_chunk_spec": (spec,), "output_merge_spec": spec}
        out = Schedule1F1B(stage, 2, loss_fn=loss, **how).step(given, target=wanted)
        assert out.shape[:2] == wanted.shape

    return gradient(train)


whole = gradient(lambda layer: loss(layer(x), target).backward())
first, second = (float((piped(one) - whole).norm() / whole.norm()) for one in (0, 1))
print(f"seen: the gradient differs from the whole batch's by {first:.0e} of it if the batch comes first, "
      f"by {second:.0%} if it comes second and the spec says so")
assert first < 1e-5
assert second > 0.5
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
