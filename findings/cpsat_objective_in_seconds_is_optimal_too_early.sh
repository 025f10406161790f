#!/usr/bin/env bash
# Finding: CP-SAT calls a job shop OPTIMAL at 648 whose optimum is 566, if its objective is stated in seconds and a unit is
#   a microsecond: minimize(1e-6 * makespan).
# Package: ortools 9.15.6755 (Python).
# Seen in its parameters: absolute_gap_limit is 1e-4 unless given, in the objective's own unit, and a search that it ends
#   has the status OPTIMAL.
# Guess of a good engineer: start times are integers, so a factor on the objective changes its unit and not the answer.
# Who is hurt: who reports a makespan in seconds or divides it by a baseline. Differences below 1e-4 are not searched for,
#   and the status does not say so. The bound does: 554. With absolute_gap_limit = 0, 566 is found.
# Run: bash findings/cpsat_objective_in_seconds_is_optimal_too_early.sh   (some 40 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
import random

from ortools.sat.python import cp_model

JOBS, MACHINES = 8, 6


def solved(unit, **parameters):
    """Status, makespan and bound in microseconds."""
    random.seed(3)
    model = cp_model.CpModel()
    machines, ends = [[] for _ in range(MACHINES)], []
    for _ in range(JOBS):
        ready = 0
        for machine in random.sample(range(MACHINES), MACHINES):
            length, start = random.randint(1, 99), model.new_int_var(0, 50_000, "")
            machines[machine].append(model.new_fixed_size_interval_var(start, length, ""))
            model.add(start >= ready)
            ready = start + length
        ends.append(ready)
    for intervals in machines:
        model.add_no_overlap(intervals)
    makespan = model.new_int_var(0, 50_000, "")
    model.add_max_equality(makespan, ends)
    model.minimize(unit * makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    status = solver.status_name(solver.solve(model))
    found = status, solver.value(makespan), round(solver.best_objective_bound / unit)
    print(f"objective in {unit} of a second, {parameters}: {found}")
    return found


exact, seconds = solved(1), solved(1e-6)
closed = solved(1e-6, absolute_gap_limit=0.0)
assert exact == closed == ("OPTIMAL", 566, 566), (exact, closed)
assert seconds[0] == "OPTIMAL"
assert seconds[1] > 566 > seconds[2], seconds
print(f"seen: OPTIMAL with {seconds[1]} in seconds, with {exact[1]} in microseconds")
PY
"$work/venv/bin/python" "$work/look.py"
