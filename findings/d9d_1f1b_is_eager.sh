#!/usr/bin/env bash
# Finding: d9d's schedule "1f1b" with one stage a rank is eager 1F1B. The first of p ranks holds 2p - 1 microbatches,
#   where 1F1B holds p: 7, 5, 3 and 1 on 4 ranks, not 4, 3, 2 and 1.
# Package: d9d 0.24.0 with torch 2.14.1.
# Seen in its code: one builder makes "1f1b" for any number of stages a rank, with the warm-up of interleaved 1F1B,
#   2 (p - 1 - r) forwards more than the last rank has.
# Guess of a good engineer: 1F1B, with the memory that its paper is known for. The docs call it "Interleaved 1F1B",
#   which with one stage a rank is 1F1B elsewhere.
# Who is hurt: who moves a configuration that just fits from torch, DeepSpeed or Megatron-LM: almost twice as many
#   activations on the first rank, so it runs out of memory there, or somebody recomputes for nothing.
# Run: bash findings/d9d_1f1b_is_eager.sh   (some 3 GB of downloads with torch, several minutes)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.14.1 numpy==2.4.6 pydantic optree tqdm safetensors
"$work/venv/bin/pip" install -q --no-deps d9d==0.24.0
cat > "$work/look.py" <<'PY'
from d9d.pipelining.factory.config import PipelineSchedule1F1BConfig
from d9d.pipelining.factory.registry import PIPELINE_PROGRAM_REGISTRY

RANKS, MICROBATCHES = 4, 12
config = PipelineSchedule1F1BConfig(schedule="1f1b", num_stages_per_rank=1, zero_bubble=False)
program = PIPELINE_PROGRAM_REGISTRY.program_for(config).compose(MICROBATCHES, RANKS)
found = []
for rank in range(RANKS):
    held = most = 0
    for action in map(str, program[rank]):  # as 0F3, 0SEND_F3, 0B3
        held += action.startswith(f"{rank}F")
        most = max(most, held)
        held -= action.startswith(f"{rank}B")
    assert held == 0
    found.append(most)
print(f"microbatches in flight, by rank: d9d's 1f1b {found}, 1F1B {[*range(RANKS, 0, -1)]}")
assert found == [2 * (RANKS - rank) - 1 for rank in range(RANKS)], found
print("seen: d9d's 1f1b warms up with twice as many forwards as 1F1B")
PY
"$work/venv/bin/python" "$work/look.py"
