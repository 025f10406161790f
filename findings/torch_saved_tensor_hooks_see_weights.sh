#!/usr/bin/env bash
# Finding: what saved_tensors_hooks are handed for a linear layer includes its weight, as a plain tensor (a transposed view, no
#   Parameter), if the layer's input needs a gradient, and not if it does not. So the same layers "hold" their weights on
#   every stage of a pipeline, once per microbatch, and the first layer of the first stage does not.
# Package: torch 2.13.0 (2.15.0 does the same).
# Guess of a good engineer: saved tensors are activations, and isinstance(t, Parameter) finds the rest.
# Who is hurt: who measures a stage's activation memory, or offloads activations, by these hooks: with few tokens most of
#   the bytes are weights, which no backward frees, and an offloader copies them out with every microbatch. The storage's
#   data_ptr tells them: it is a parameter's.
# Run: bash findings/torch_saved_tensor_hooks_see_weights.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import torch
from torch.autograd.graph import saved_tensors_hooks

TOKENS, WIDTH = 32, 1024
layers = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)])


def saved(needs_gradient):
    """Bytes of saved tensors: those of weights, the others, and how many are a Parameter."""
    seen = []

    def pack(tensor):
        seen.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layers(torch.randn(TOKENS, WIDTH).requires_grad_(needs_gradient))
    of_weights = {p.untyped_storage().data_ptr() for p in layers.parameters()}
    weights = [t for t in seen if t.untyped_storage().data_ptr() in of_weights]
    assert output.requires_grad and not any(isinstance(t, torch.nn.Parameter) for t in weights)
    total = sum(t.nbytes for t in seen)
    return sum(t.nbytes for t in weights), total - sum(t.nbytes for t in weights)


weight, activation = 4 * WIDTH * WIDTH, 4 * TOKENS * WIDTH
first, middle = saved(False), saved(True)
print(f"bytes of (weights, activations) saved: first stage {first}, others {middle}")
assert first == (3 * weight, 4 * activation) and middle == (4 * weight, 4 * activation)
print(f"seen: hooks are handed {sum(middle) / middle[1]:.0f} times the bytes of the activations")
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
