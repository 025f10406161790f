#!/usr/bin/env bash
# Finding: CP-SAT's max_deterministic_time limits each worker, and the response's deterministic_time is the sum over
#   workers: with 8 workers and a limit of 1, about 7 is reported.
# Package: ortools 9.15.6755.
# Guess of a good engineer: the reported deterministic time is at most the limit (and a small overshoot).
# Who is hurt: who divides one solve's budget among others by subtracting what responses report. With several
#   workers the budget is gone after a fraction of the solves.
# Run: bash findings/cpsat_deterministic_limit_is_per_worker.sh   (some 40 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
import random

from ortools.sat.python import cp_model

random.seed(3)
JOBS, MACHINES, LIMIT = 20, 20, 1.0
model = cp_model.CpModel()
machines, ends = [[] for _ in range(MACHINES)], []
for _ in range(JOBS):  # a job shop that is not solved in so little time
    ready = 0
    for machine in random.sample(range(MACHINES), MACHINES):
        length, start = random.randint(1, 99), model.new_int_var(0, 5000, "")
        machines[machine].append(model.new_fixed_size_interval_var(start, length, ""))
        model.add(start >= ready)
        ready = start + length
    ends.append(ready)
for intervals in machines:
    model.add_no_overlap(intervals)
makespan = model.new_int_var(0, 5000, "")
model.add_max_equality(makespan, ends)
model.minimize(makespan)
spent = {}
for workers in (1, 8):
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.max_deterministic_time = LIMIT
    status = solver.status_name(solver.solve(model))
    spent[workers] = solver.response_proto.deterministic_time
    print(f"{workers} workers, limit {LIMIT}: {status}, {spent[workers]:.2f} reported")
assert spent[1] < 2 * LIMIT < 4 * LIMIT < spent[8], spent
print(f"seen: a limit of {LIMIT} and 8 workers report {spent[8]:.1f}, one worker {spent[1]:.1f}")
PY
"$work/venv/bin/python" "$work/look.py"
