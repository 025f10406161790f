#!/usr/bin/env bash
# Finding: CP-SAT's add(x == y == z) adds x == y alone, and add(x != y != z) adds y != z alone. Python asks the first half
#   whether it is true, and the equality of two different variables says no, where x <= y <= z and 1 <= x <= 3 raise.
# Package: ortools 9.15.6755 (Python).
# Guess of a good engineer: a chain means what it means in Python, or is refused as the chains of <= are.
# Who is hurt: who ties the devices of several stages, or makes three ops differ. The answer is OPTIMAL, and breaks the
#   rule that was thought to be there.
# Run: bash findings/cpsat_chained_equality_keeps_its_first_half.sh   (some 40 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
from ortools.sat.python import cp_model


def answer(rule):
    """The farthest apart that x, y and z get under a rule, or why it is refused."""
    model = cp_model.CpModel()
    x, y, z = (model.new_int_var(0, 9, name) for name in "xyz")
    try:
        model.add(rule(x, y, z))
    except NotImplementedError:
        return "refused"
    model.maximize(2 * z - x - y)
    solver = cp_model.CpSolver()
    status = solver.status_name(solver.solve(model))
    return status, *map(solver.value, (x, y, z))


found = {
    "x == y == z": answer(lambda x, y, z: x == y == z),
    "x != y != z": answer(lambda x, y, z: x != y != z),
    "x <= y <= z": answer(lambda x, y, z: x <= y <= z),
    "1 <= x <= 3": answer(lambda x, y, z: 1 <= x <= 3),
}
print(found)
assert found["x == y == z"] == found["x != y != z"] == ("OPTIMAL", 0, 0, 9), found
assert found["x <= y <= z"] == found["1 <= x <= 3"] == "refused", found
print("seen: OPTIMAL with 0, 0, 9 for x == y == z, and for x != y != z")
PY
"$work/venv/bin/python" "$work/look.py"
