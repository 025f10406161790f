#!/usr/bin/env bash
# Finding: fairscale's balance_by_time subtracts the time of the fastest layer from every layer before it balances. Layers that
#   are alike then weigh nothing, and where they go is left to chance: of 12 layers of 10 ms and a head of 30 ms, the last of 4
#   devices has 60 ms, where 40 is possible.
# Package: fairscale 0.4.13 with torch 2.13.0 (torchgpipe 0.0.7, from which it comes, has the same code).
# Seen in its code: blockpartition.solve maps times to 0 ... 1 by (x - min) / (max - min), and sums those.
# Guess of a good engineer: not the optimum, as its docstring says, but stages whose sums of times are about equal.
# Who is hurt: who balances transformers, whose blocks are alike, around a heavy head. A pipeline runs at the pace of its longest
#   stage, so each microbatch takes half as long again. balance_by_size shares out memory by the same code.
# Run: bash findings/fairscale_balance_takes_the_shortest_layer_as_nothing.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
"$work/venv/bin/pip" install -q --no-deps fairscale==0.4.13
cat > "$work/look.py" <<'PY'
import time
from itertools import accumulate, combinations, pairwise

import torch
from fairscale.nn.pipe.balance import balance_by_time

TIMES, DEVICES = [10] * 12 + [30], 4


class Layer(torch.nn.Module):
    """Takes so many milliseconds, in its forward."""

    def __init__(self, milliseconds):
        super().__init__()
        self.seconds = milliseconds / 1000
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        time.sleep(self.seconds)
        return self.weight * x


def stages(counts):
    return [sum(TIMES[a:b]) for a, b in pairwise([0, *accumulate(counts)])]


model = torch.nn.Sequential(*map(Layer, TIMES))
found = stages(balance_by_time(DEVICES, model, torch.ones(1), device=torch.device("cpu")))
cuts = combinations(range(1, len(TIMES)), DEVICES - 1)
best = min(max(sum(TIMES[a:b]) for a, b in pairwise([0, *cut, len(TIMES)])) for cut in cuts)
print(f"milliseconds of the stages: {found}; the longest stage takes {best} at best")
assert best == 40
assert max(found) >= 50, found
print(f"seen: a longest stage of {max(found)} ms for {best}")
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
