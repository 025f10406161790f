#!/usr/bin/env bash
# Finding: Holistic Trace Analysis counts a GPU's idle time from its own first kernel to its own last one. In traces of one
#   step the wait before a rank's first kernel and after its last one, which is the bubble, is not in it: of four ranks that
#   all idle for 27 % of a GPipe step, it says 27, 20, 11 and 0 %.
# Package: HolisticTraceAnalysis 0.5.0.
# Seen in its code: get_temporal_breakdown divides by the end of a rank's last kernel less the start of its first one.
# Guess of a good engineer: idle_time_pctg is of the profiled step, and ranks of one step are compared by it.
# Who is hurt: who reads a pipeline's bubble from it, where receives are no kernels that wait (copies, CPU transports). The
#   last rank looks perfect, and the first one to blame.
# Run: bash findings/hta_idle_time_leaves_out_fill_and_drain.sh   (some 150 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q HolisticTraceAnalysis==0.5.0 pandas==3.1.1 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import json
import logging
import os
import sys

logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis

RANKS, MICROBATCHES, FORWARD, BACKWARD = 4, 8, 1000, 2000
STEPS = MICROBATCHES + RANKS - 1
STEP = STEPS * (FORWARD + BACKWARD)


def kernels(rank):
    """GPipe: (start, duration) of each op of a rank; all forwards, then all backwards."""
    for number in range(MICROBATCHES):
        yield (rank + number) * FORWARD, FORWARD
    for number in range(MICROBATCHES):
        yield STEPS * FORWARD + (RANKS - 1 - rank + number) * BACKWARD, BACKWARD


for rank in range(RANKS):
    row = {"ph": "X", "pid": 1, "tid": 1}
    step = {"cat": "user_annotation", "name": "ProfilerStep#0", "ts": 1000, "dur": STEP, "args": {}}
    events = [{**row, **step}]
    for number, (start, duration) in enumerate(kernels(rank), 1):
        args = {"correlation": number}
        host = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1000 + start, "dur": 0}
        events.append({**row, **host, "args": args})
        kernel = {"cat": "kernel", "name": "gemm", "ts": 1000 + start, "dur": duration}
        args = {**args, "stream": 7, "device": 0}
        events.append({**row, **kernel, "pid": 0, "tid": 7, "args": args})
    where = {"backend": "nccl", "rank": rank, "world_size": RANKS}
    with open(os.path.join(sys.argv[1], f"rank{rank}.json"), "w") as file:
        json.dump({"schemaVersion": 1, "distributedInfo": where, "traceEvents": events}, file)

table = TraceAnalysis(trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False)
said = [round(float(one)) for one in table.sort_values("rank")["idle_time_pctg"]]
true = round(100 * (1 - MICROBATCHES * (FORWARD + BACKWARD) / STEP))
print(f"every rank idles for {true} % of the step; said: {said}")
assert (true, said) == (27, [27, 20, 11, 0]), (true, said)
print("seen: 0 % idle is said of a rank that idles for 27 % of the step")
PY
mkdir "$work/traces"
"$work/venv/bin/python" "$work/look.py" "$work/traces"
