#!/usr/bin/env bash
# Finding: torch's pipeline runtime waits for the sends of gradients when the step ends, for those of activations behind
#   the backward of the same microbatch. So every input gradient of the step stays in memory, and "outputs are released
#   after their send" holds outputs as long as before. max_outstanding_sends moves the waits; its default moves none.
# Package: torch 2.15.0 (ScheduleInterleaved1F1B, and every class with several stages; Schedule1F1B waits at once).
# Seen in its code: _add_wait_send puts one wait behind the backward, or at the end of the rank's list.
# Guess of a good engineer: a send is waited for soon, and memory in flight does not grow with the microbatches.
# Who is hurt: who counts on the release for memory: m x one activation per stage is there at the end of each step.
# Run: bash findings/torch_sends_wait_for_the_end_of_the_step.sh   (some 3 GB of downloads, minutes)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.15.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS, STAGES = 2, 4
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())


def most(microbatches, **limit):
    """Of each kind, the most sends of rank 0 that are begun and not waited for."""
    stages = [PipelineStage(torch.nn.Linear(3, 3), n, STAGES, torch.device("cpu")) for n in (0, 2)]
    schedule = ScheduleInterleaved1F1B(stages, microbatches, loss_fn=torch.nn.functional.mse_loss, **limit)
    begun, found = {"SEND_F": 0, "SEND_B": 0}, {}
    for action in schedule.pipeline_order_with_comms[0]:
        text = str(action)
        for kind in begun:
            begun[kind] += (kind in text) * (-1 if "WAIT" in text else 1)
            found[kind] = max(found.get(kind, 0), begun[kind])
    return found


plain = {microbatches: most(microbatches) for microbatches in (4, 8, 16)}
limited = most(16, max_outstanding_sends=2)
print(f"sends begun and not waited for, by microbatches: {plain}; with max_outstanding_sends=2: {limited}")
assert [found["SEND_B"] for found in plain.values()] == [4, 8, 16], plain
assert max(limited.values()) <= 2, limited
print("seen: as many gradients wait to be sent as there are microbatches, unless max_outstanding_sends says otherwise")
PY
"$work/venv/bin/python" "$work/look.py" 2> /dev/null
