#!/usr/bin/env bash
# Finding: CP-SAT's `user_time` is no processor time. It is the same number as `wall_time`, from the clock: on a machine
#   with other work it grows while the solver waits for a core.
# Package: ortools 9.15.6755 (Python).
# Guess of a good engineer: user_time is what `time` calls user, so it is the figure to compare solvers by on a busy
#   machine or in a container with a quota.
# Who is hurt: who benchmarks models beside other jobs by user_time. A solver that had a fifth of a core looks five times
#   slower. With one worker the search runs in the calling thread, and time.thread_time() around solve() has its share.
# Run: bash findings/cpsat_user_time_is_the_clock.sh   (some 60 MB of downloads, ten seconds on Linux)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
import os
import subprocess
import sys
import time

from ortools.sat.python import cp_model

core = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})  # one core, which four others want too
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
try:
    model = cp_model.CpModel()
    # a flow shop that is not solved in four seconds
    starts = [[model.new_int_var(0, 3000, "") for _ in range(25)] for _ in range(6)]
    last = model.new_int_var(0, 4000, "")
    for machine, row in enumerate(starts):
        sizes = [10 + (7 * job * (machine + 3)) % 23 for job in range(25)]
        model.add_no_overlap(map(model.new_fixed_size_interval_var, row, sizes, map(str, sizes)))
        for job, start in enumerate(row):
            model.add(last >= start + sizes[job])
            if machine:
                model.add(start >= starts[machine - 1][job] + 9)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 4
    before = time.thread_time()
    solver.solve(model)
    used = time.thread_time() - before
finally:
    for other in others:
        other.kill()
print(f"by the clock {solver.wall_time:.2f} s, user_time {solver.user_time:.2f} s, of the processor {used:.2f} s")
assert used < 0.6 * solver.wall_time, "the core was not shared"
assert abs(solver.user_time - solver.wall_time) < 0.05 * solver.wall_time
print("seen: user_time is the time by the clock, not the processor's")
PY
"$work/venv/bin/python" "$work/look.py"
