#!/usr/bin/env bash
# Finding: CP-SAT's two rules for one machine differ about an interval of length 0. Inside another interval add_no_overlap
#   forbids it, and add_cumulative allows it, whatever it demands, even more than the capacity. At an interval's ends both do.
# Package: ortools 9.15.6755 (Python).
# Guess of a good engineer: a cumulative of capacity 1 and demands 1 is a no_overlap, so one may replace the other, or be
#   added beside it to help the search.
# Who is hurt: who has ops that take no time (an empty stage, a marker, a stage without weight gradient). A model is
#   infeasible, or longer, by one rule, and a schedule checked by the other is called wrong.
# Run: bash findings/cpsat_instants_overlap_in_cumulative_alone.sh   (some 40 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755
cat > "$work/look.py" <<'PY'
from ortools.sat.python import cp_model


def allowed(rule, instant):
    """Whether an interval of length 0 may stand at `instant` beside one from 0 to 10."""
    model = cp_model.CpModel()
    busy = model.new_fixed_size_interval_var(0, 10, "busy")
    point = model.new_fixed_size_interval_var(instant, 0, "point")
    rule(model, [busy, point])
    solver = cp_model.CpSolver()
    return solver.status_name(solver.solve(model)) == "OPTIMAL"


RULES = {
    "no_overlap": lambda model, both: model.add_no_overlap(both),
    "cumulative": lambda model, both: model.add_cumulative(both, [1, 1], 1),
    "cumulative, demand 7": lambda model, both: model.add_cumulative(both, [1, 7], 1),
}
found = {name: [at for at in (0, 5, 10) if allowed(rule, at)] for name, rule in RULES.items()}
print("an instant beside an interval from 0 to 10 may stand at", found)
assert [*found.values()] == [[0, 10], [0, 5, 10], [0, 5, 10]], found
print("seen: cumulative allows at 5 what no_overlap forbids")
PY
"$work/venv/bin/python" "$work/look.py"
