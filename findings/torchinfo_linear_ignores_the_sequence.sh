#!/usr/bin/env bash
# Finding: torchinfo's mult-adds of a Linear are its weights times the first dimension of its output. With (batch, tokens, width)
#   the tokens are left out: 1,024 tokens cost as much as one. A convolution of width 1, the same arithmetic, is counted whole,
#   and a lookup in an embedding counts as a product with all of its table.
# Package: torchinfo 1.8.0, its latest release, with torch 2.13.0.
# Source: its issue 77 reports it, pull request 318 mends it, behind that release.
# Guess of a good engineer: "mult-adds" of a summary made for an input are those of that input, as they are for images.
# Who is hurt: who compares layers by them to cut a model into stages. Beside linear layers a convolution, or an embedding that
#   multiplies nothing, looks as many times heavier than it is as there are tokens.
# Run: bash findings/torchinfo_linear_ignores_the_sequence.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 torchinfo==1.8.0
cat > "$work/look.py" <<'PY'
import torch
import torchinfo

WIDTH, OUT, WORDS = 64, 256, 5000


def counted(layer, *shape, **more):
    return torchinfo.summary(layer, input_size=shape, verbose=0, **more).total_mult_adds


linear = torch.nn.Linear(WIDTH, OUT, bias=False)
by_tokens = {tokens: counted(linear, 1, tokens, WIDTH) for tokens in (1, 1024)}
flat = counted(linear, 1024, WIDTH)
convolution = counted(torch.nn.Conv1d(WIDTH, OUT, 1, bias=False), 1, WIDTH, 1024)
lookup = counted(torch.nn.Embedding(WORDS, WIDTH), 1, 1024, dtypes=[torch.long])
print(f"mult-adds of a Linear for 1 and 1,024 tokens: {by_tokens}; for the same rows, flat: {flat}")
print(f"of a convolution of width 1: {convolution}; of a lookup in an embedding: {lookup}")
assert by_tokens == {1: WIDTH * OUT, 1024: WIDTH * OUT}
assert flat == convolution == 1024 * WIDTH * OUT
assert lookup == WORDS * WIDTH
print("seen: 1,024 tokens are counted as one")
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
