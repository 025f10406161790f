#!/usr/bin/env bash
# Finding: torch.profiler records the thread that started it. Of other threads of the process, begun before or inside the
#   profile, neither operators nor record_function ranges are in the trace, and no message says so.
# Package: torch 2.13.0 (CPU; 2.15.0 does the same). _ExperimentalConfig(profile_all_threads=True), a private name, records
#   all of them.
# Guess of a good engineer: a profile is of the process. A trace has a row per thread, after all.
# Who is hurt: who runs stages, transfers or an optimizer in threads of their own. Their time is missing, so the trace of a
#   busy process shows idle time, and costs taken from it lack ops.
# Run: bash findings/torch_profiler_sees_one_thread.sh   (some 250 MB of downloads, a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import json
import sys
import threading

import torch
from torch.profiler import ProfilerActivity, profile, record_function

NAMES = {"the same thread", "a thread begun before", "a thread begun inside"}


def work(name):
    with record_function(name):
        torch.ones(64, 64) @ torch.ones(64, 64)


def recorded(**options):
    begin = threading.Event()
    before = threading.Thread(target=lambda: (begin.wait(), work("a thread begun before")))
    before.start()
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        work("the same thread")
        begin.set()
        before.join()
        inside = threading.Thread(target=work, args=("a thread begun inside",))
        inside.start()
        inside.join()
    profiler.export_chrome_trace(sys.argv[1])
    with open(sys.argv[1]) as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    return NAMES.intersection(names), names.count("aten::matmul")


every = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
found, with_all = recorded(), recorded(experimental_config=every)
print(f"recorded ranges and products: {found}; with profile_all_threads: {with_all}")
assert found == ({"the same thread"}, 1) and with_all == (NAMES, 3), (found, with_all)
print("seen: of three threads that multiply, the trace has one")
PY
"$work/venv/bin/python" -W ignore "$work/look.py" "$work/trace.json" 2> "$work/log" || { cat "$work/log"; exit 1; }
