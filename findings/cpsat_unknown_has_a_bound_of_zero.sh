#!/usr/bin/env bash
# Finding: after UNKNOWN, CP-SAT's best_objective_bound is 0.0, also for a maximum that is at least 50. Read as a bound it
#   says that nothing above 0 can be had.
# Package: ortools 9.15.6755 (Python).
# Guess of a good engineer: a bound is true whenever the solve ends, and infinite or an error before there is one.
# Who is hurt: who maximises throughput, or minimises something that may be negative, under a short limit, and logs bound
#   and gap of each solve. The objective is 0.0 too, so the gap reads as closed.
# Run: bash findings/cpsat_unknown_has_a_bound_of_zero.sh   (some 40 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
from ortools.sat.python import cp_model

model = cp_model.CpModel()
rates = [model.new_int_var(5, 100, "") for _ in range(10)]
model.maximize(sum(rates))
found = []
for limit in (1e-9, 10.0):
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    status = solver.status_name(solver.solve(model))
    found.append((status, solver.objective_value, solver.best_objective_bound))
    print(f"limit {limit} s: {status}, objective {found[-1][1]}, at most {found[-1][2]}")
assert found == [("UNKNOWN", 0.0, 0.0), ("OPTIMAL", 1000.0, 1000.0)], found
print("seen: at most 0 is said of a maximum that is 1000")
PY
"$work/venv/bin/python" "$work/look.py"
