#!/usr/bin/env bash
# Finding: CP-SAT takes a variable of another model by its number. A constraint on it binds whichever variable has that
#   number here. Nothing is raised, and the answer is OPTIMAL.
# Package: ortools 9.15.6755 (Python).
# Guess of a good engineer: a variable belongs to its model, so mixing two models raises.
# Who is hurt: who solves a large schedule in windows or lanes, one model each, and keeps dictionaries of starts. One
#   start of the wrong window gives an order that breaks a dependency, proven optimal.
# Run: bash findings/cpsat_takes_variables_of_another_model.sh   (some 40 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
from ortools.sat.python import cp_model


def window():
    """A model with the starts of a forward and a backward of one stage."""
    model = cp_model.CpModel()
    return model, model.new_int_var(0, 99, "forward"), model.new_int_var(0, 99, "backward")


first, _, first_backward = window()
second, forward, backward = window()
second.add(first_backward >= 7)  # meant: the last backward of the window before
second.minimize(forward + backward)
solver = cp_model.CpSolver()
status = solver.status_name(solver.solve(second))
found = solver.value(forward), solver.value(backward)
print(f"{status}: forward {found[0]}, backward {found[1]}, which nothing in its model bounds")
assert (status, found) == ("OPTIMAL", (0, 7)), (status, found)
print("seen: a constraint on a variable of one model bound another variable of the other")
PY
"$work/venv/bin/python" "$work/look.py"
