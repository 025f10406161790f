#!/usr/bin/env bash
# Finding: HiGHS calls a schedule Optimal, with a gap of 0, in which three ops of 3, 4 and 5 run at once on one machine: it ends
#   at 5, not at 12. All that is wrong with the model is that the M of its either-or rules is large, 10 million.
# Package: highspy 1.16.0.
# Why: a binary that is within 1e-6 of a whole number counts as one (mip_feasibility_tolerance). 5e-7 of an M of 1e7 is 5, as
#   long as an op, so both halves of "either before or after" hold at once.
# Guess of a good engineer: a larger M makes the relaxation weaker and the search slower. It never makes the answer wrong.
# Who is hurt: who takes a safe round number for M (a day in ms, a horizon in ns) and checks the status alone. With M = 100
#   it is 12, less 1e-6. Read starts only after rounding the binaries and timing the order that they say.
# Run: bash findings/highs_large_m_lets_ops_overlap.sh   (some 25 MB of downloads, ten seconds)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q highspy==1.16.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
from itertools import combinations

import highspy

LENGTHS = (3, 4, 5)


def one_machine(large):
    """Status, gap and makespan of ops on one machine, each two of them one after the other."""
    model = highspy.Highs()
    model.silent()
    starts = [model.addVariable(0, large) for _ in LENGTHS]
    end = model.addVariable(0, large)
    for start, length in zip(starts, LENGTHS, strict=True):
        model.addConstr(start + length <= end)
    for a, b in combinations(range(3), 2):
        first = model.addBinary()
        model.addConstr(starts[a] + LENGTHS[a] <= starts[b] + large * (1 - first))
        model.addConstr(starts[b] + LENGTHS[b] <= starts[a] + large * first)
    model.minimize(end)
    status = model.modelStatusToString(model.getModelStatus())
    return status, model.getInfo().mip_gap, model.val(end)


small, large = one_machine(100), one_machine(1e7)
print("status, gap, makespan with M = 100:", small)
print("status, gap, makespan with M = 1e7:", large)
assert small[0] == large[0] == "Optimal"
assert large[1] == 0
assert abs(small[2] - sum(LENGTHS)) < 1e-3
assert large[2] < 0.8 * sum(LENGTHS)
print("seen: an Optimal makespan below the machine's load")
PY
"$work/venv/bin/python" "$work/look.py"
