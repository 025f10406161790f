#!/usr/bin/env bash
# Finding: Ray starts its workers at niceness 15, whatever the driver's is. Beside one busy process of the usual niceness,
#   a task on the same core gets a few per cent of it.
# Package: ray 2.60.0 (Linux).
# Guess of a good engineer: a task runs at the priority of the program that asked for it.
# Who is hurt: who sends solves with a time limit, or measurements, to Ray on a machine that also does something else, or
#   compares them with runs in the driver. RAY_worker_niceness=0 in the environment of ray.init() helps.
# Run: bash findings/ray_workers_run_at_niceness_15.sh   (some 90 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ray==2.60.0
cat > "$work/look.py" <<'PY'
import os
import subprocess
import sys
import time

import ray

CORE = min(os.sched_getaffinity(0))


def share(seconds):
    """Niceness, and the share of the core that a loop gets for so long."""
    os.sched_setaffinity(0, {CORE})
    begun, used = time.time(), time.process_time()
    while time.time() < begun + seconds:
        pass
    return os.nice(0), (time.process_time() - used) / seconds


ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
busy = subprocess.Popen(
    [sys.executable, "-c", "while True: pass"],
    preexec_fn=lambda: os.sched_setaffinity(0, {CORE}),
)
try:
    task = ray.get(ray.remote(share).remote(4))
    own = share(4)
finally:
    busy.kill()
    ray.shutdown()
print(f"driver: niceness {own[0]}, {own[1]:.0%} of the core beside a busy process")
print(f"task:   niceness {task[0]}, {task[1]:.0%} of it")
assert task[0] == own[0] + 15 or task[0] == 15, (task, own)
assert task[1] < own[1] / 2, (task, own)
print("seen: the same loop gets less than half as much in a Ray task")
PY
"$work/venv/bin/python" "$work/look.py"
