#!/usr/bin/env bash
# Finding: Holistic Trace Analysis rounds every kernel of a trace with nanoseconds inwards to whole microseconds. Of a GPU
#   whose kernels of 2.3 us follow one another without a gap, its temporal breakdown says 43 % idle.
# Package: HolisticTraceAnalysis 0.5.0 (torch 2.13.0 writes such traces).
# Seen in its code: trace_parser.py's round_down_time_stamps takes the ceiling of each start and the floor of each end.
# Guess of a good engineer: rounding is neutral on average. Here each kernel loses about a microsecond to idle time.
# Who is hurt: who reads a pipeline's bubble or launch overhead from idle_time_pctg with many small kernels.
#   HTA_DISABLE_NS_ROUNDING=1 in the environment keeps the fractions.
# Run: bash findings/hta_rounds_kernels_into_idle_time.sh   (some 150 MB of downloads, a minute)
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

KERNELS, STEPS = 200, 3


def idle(microseconds):
    """Per cent idle that is said of kernels of this length, one right after the other."""
    events, now, number = [], 1000.123, 0
    for step in range(STEPS):
        begun = now
        for _ in range(KERNELS):
            number += 1
            args = {"correlation": number}
            host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
            kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7}
            events.append({**host, "ts": round(now - 500, 3), "dur": 0.2, "args": args})
            args = {**args, "stream": 7, "device": 0}
            events.append({**kernel, "ts": round(now, 3), "dur": microseconds, "args": args})
            now += microseconds
        step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1}
        events.append({**step, "ts": round(begun - 600, 3), "dur": round(now - begun, 3), "args": {}})
    folder = os.path.join(sys.argv[1], str(microseconds))
    os.makedirs(folder)
    ranks = {"backend": "nccl", "rank": 0, "world_size": 1}
    with open(os.path.join(folder, "rank0.json"), "w") as file:
        json.dump({"schemaVersion": 1, "distributedInfo": ranks, "traceEvents": events}, file)
    table = TraceAnalysis(trace_dir=folder).get_temporal_breakdown(visualize=False)
    return float(table["idle_time_pctg"][0])


found = {length: idle(length) for length in (2.3, 5.7, 50.7)}
print(f"per cent idle of a GPU that never is, by the length of a kernel in us: {found}")
assert found[2.3] > 35 and found[5.7] > 12 and found[50.7] < 4, found
print(f"seen: {found[2.3]:.0f} % idle time between kernels that leave no gap")
PY
"$work/venv/bin/python" "$work/look.py" "$work"
