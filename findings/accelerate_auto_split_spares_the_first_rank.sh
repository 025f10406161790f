#!/usr/bin/env bash
# Finding: accelerate's prepare_pippy(split_points="auto") cuts 32 equal layers for 8 ranks into 3, 4, 4, 4, 4, 4, 4 and 5. The
#   first rank gets a layer less, the last one whatever is left: with an embedding and a head besides, 2 and 6.
# Package: accelerate 1.15.0 with torch 2.13.0.
# Source: the docstring of prepare_pippy says that 'auto' finds "the best balanced split given any model".
# Seen in its code: the split is a device map of infer_auto_device_map with 1.1 shares of memory for each rank. Such a map keeps
#   room for the largest layer free on the first device, and what fits nowhere goes to disk, which here means the last rank.
# Guess of a good engineer: equal layers that the ranks divide are divided equally.
# Who is hurt: whose ranks wait for the last one, which takes 25 % longer than needed, or 50 %. Names given as split_points are
#   taken as they are.
# Run: bash findings/accelerate_auto_split_spares_the_first_rank.sh   (some 260 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 accelerate==1.15.0
cat > "$work/look.py" <<'PY'
import logging
from types import SimpleNamespace

import torch
from accelerate import inference
from torch import nn

logging.disable()
LAYERS, RANKS, WIDTH, WORDS = 32, 8, 1024, 8000
inference.build_pipeline = lambda *_: SimpleNamespace(step=None)  # stages want a process each


class Model(nn.Module):
    def __init__(self, with_ends):
        super().__init__()
        if with_ends:
            self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 8) for _ in range(LAYERS))
        if with_ends:
            self.head = nn.Linear(WIDTH, WORDS, bias=False)


def layers_per_rank(with_ends):
    with torch.device("meta"):
        model = Model(with_ends)
    whole = ["TransformerEncoderLayer"]
    inference.prepare_pippy(model, "auto", no_split_module_classes=whole, num_chunks=RANKS)
    firsts = [0, *(int(name.removeprefix("layers.")) for name in model.hf_split_points), LAYERS]
    return [after - before for before, after in zip(firsts, firsts[1:])]


alone, among = layers_per_rank(False), layers_per_rank(True)
print(f"{LAYERS} equal layers, split for {RANKS} ranks: {alone}; with embedding and head: {among}")
assert sum(alone) == sum(among) == LAYERS
assert alone == [3, 4, 4, 4, 4, 4, 4, 5], alone
assert (among[0], among[-1]) == (2, 6), among
print("seen: the last rank has five or six layers, where four each was possible")
PY
"$work/venv/bin/python" -W ignore "$work/look.py"
