#!/usr/bin/env bash
# Finding: FlopCounterMode counts 0 for what it has no formula for, and does not say so: grouped_mm, which experts of a mixture
#   are multiplied by, an LSTM, attention on the CPU. A TransformerEncoderLayer counts in training; in eval(), no_grad, it is 0.
# Package: torch 2.13.0 (torch.utils.flop_counter, CPU).
# Seen in its code: a table of formulas per operator. It has neither _grouped_mm nor the CPU's attention; layers in eval under
#   no_grad take one fused operator of their own, which it lacks too.
# Guess of a good engineer: the FLOPs of a model, or a warning about operators that are not counted. A Linear is counted.
# Who is hurt: who cuts a model into stages, or fills in F, by counted FLOPs: a stage of experts looks nearly free. Forward and
#   backward are both 0, so their ratio shows nothing.
# Run: bash findings/torch_flop_counter_counts_nothing_silently.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import warnings

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

EXPERTS, ROWS, WIDTH = 8, 16, 64


def counted(run):
    with FlopCounterMode(display=False) as counter, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run()
    return counter.get_total_flops(), said


tokens = torch.randn(EXPERTS, ROWS, WIDTH, dtype=torch.bfloat16)
weights = torch.randn(EXPERTS, WIDTH, WIDTH, dtype=torch.bfloat16)
assert torch.allclose(functional.grouped_mm(tokens, weights), tokens @ weights, rtol=0.1, atol=0.5)
heads = torch.randn(1, 4, ROWS, WIDTH)
x = torch.randn(2, ROWS, WIDTH)
layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
training = counted(lambda: layer.train()(x))[0]
layer.eval()
lstm = torch.nn.LSTM(WIDTH, WIDTH)
with torch.no_grad():
    found = {
        "expert by expert": counted(lambda: [a @ b for a, b in zip(tokens, weights, strict=True)]),
        "grouped_mm of the same": counted(lambda: functional.grouped_mm(tokens, weights)),
        "attention on the CPU": counted(
            lambda: functional.scaled_dot_product_attention(heads, heads, heads)
        ),
        "an LSTM": counted(lambda: lstm(x)),
        "the encoder layer in eval()": counted(lambda: layer(x)),
    }
print(f"counted: an encoder layer in training: {training}")
for name, (flops, _) in found.items():
    print(f"counted: {name}: {flops}")
assert training >= 2 * (2 * ROWS) * 8 * WIDTH * WIDTH  # eight matrices of WIDTH x WIDTH
assert [flops for flops, _ in found.values()] == [2 * EXPERTS * ROWS * WIDTH * WIDTH, 0, 0, 0, 0]
assert not any(said for _, said in found.values())
print("seen: four times 0, without a warning")
PY
"$work/venv/bin/python" "$work/look.py"
