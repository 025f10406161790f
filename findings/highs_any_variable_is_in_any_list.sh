#!/usr/bin/env bash
# Finding: in highspy, `x in [y, z]` is True for any variable, [x, y, z].index(z) is 0, and remove(z) takes out x: comparing
#   two variables makes a constraint, and a constraint is true. `and` between constraints adds the last one alone.
# Package: highspy 1.16.0.
# Guess of a good engineer: two different variables are not equal, or asking raises, as with the variables of CP-SAT.
# Who is hurt: who keeps variables in lists (those of one device, those still to be fixed) and takes some out again, or
#   writes addConstr(a and b). The model is another one, and its answer Optimal.
# Run: bash findings/highs_any_variable_is_in_any_list.sh   (some 25 MB of downloads, ten seconds)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q highspy==1.16.0
cat > "$work/look.py" <<'PY'
import highspy

model = highspy.Highs()
model.silent()
x, y, z = (model.addVariable(lb=0, ub=9) for _ in range(3))
listed = x in [y, z], [x, y, z].index(z)
rest = [x, y, z]
rest.remove(z)
left = [one.index for one in rest]
print(f"x in [y, z]: {listed[0]}; [x, y, z].index(z): {listed[1]}; without z there are {left}")
model.addConstr(x + y <= 3 and x + z <= 3)
model.maximize(x + 2 * y)
values = [model.val(one) for one in (x, y, z)]
status = model.modelStatusToString(model.getModelStatus())
print(f"with x + y <= 3 and x + z <= 3: {status} at {values}")
assert listed == (True, 0) and left == [y.index, z.index], (listed, left)
assert status == "Optimal" and values[0] + values[1] > 3, (status, values)
print("seen: x is in [y, z], and removing z from a list removes x")
PY
"$work/venv/bin/python" "$work/look.py"
