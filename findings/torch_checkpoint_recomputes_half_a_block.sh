#!/usr/bin/env bash
# Finding: activation checkpointing with use_reentrant=False does not run the forward again to its end. It stops when the last
#   tensor that backward needs is there, so the last linear layer is not recomputed: of an MLP block (norm, up, GELU, down)
#   half the arithmetic runs again, of a head alone nothing.
# Package: torch 2.13.0 (torch.utils.checkpoint; set_checkpoint_early_stop is its documented switch; 2.15.0 does the same).
# Guess of a good engineer: a checkpointed backward takes F + B + W, as papers on recomputation count.
# Who is hurt: who states a stage's times with recomputation as F + backward, or chooses what to checkpoint by F per byte.
#   A block per checkpoint costs less than that, many layers in one checkpoint nearly all of it. Times measured with
#   the reentrant kind are those of the whole forward.
# Run: bash findings/torch_checkpoint_recomputes_half_a_block.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

WIDTH, TOKENS = 64, 8


def block():
    up, down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
    return torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), up, torch.nn.GELU(), down)


def operations(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def recomputed(module, reentrant):
    """The part of a forward's arithmetic that a checkpointed backward does once more."""
    x = torch.randn(TOKENS, WIDTH, requires_grad=True)
    forward = operations(lambda: module(x))
    backward = operations(module(x).sum().backward)
    whole = operations(checkpoint(module, x, use_reentrant=reentrant).sum().backward)
    return (whole - backward) / forward


modules = {
    "a head": torch.nn.Linear(WIDTH, 16 * WIDTH),
    "a block": block(),
    "four blocks": torch.nn.Sequential(*[block() for _ in range(4)]),
}
found = {name: [recomputed(one, kind) for kind in (False, True)] for name, one in modules.items()}
print("part of F that is recomputed, (not reentrant, reentrant):", found)
assert found == {"a head": [0, 1], "a block": [0.5, 1], "four blocks": [0.875, 1]}, found
print("seen: a checkpointed block recomputes half of its forward")
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
