#!/usr/bin/env bash
# Finding: PuLP's status of a solve that its time limit ended is "Optimal" as soon as there is any solution, with CBC
#   and with HiGHS. Here the optimum is 0, as it is built in; both call a larger value optimal after 2 s. Only
#   another field, sol_status, tells: 2 (a solution) in place of 1 (an optimal one).
# Package: PuLP 3.3.2 (with its CBC), highspy 1.16.0.
# Source: the documented statuses of PuLP; seen by running it.
# Guess of a good engineer: LpStatus[problem.status] == "Optimal" is the check that every tutorial shows, so it holds;
#   a solve that ran into its limit is "Not Solved".
# Who is hurt: who schedules pipelines by an ILP with a time limit, as large ones always have, and reports what PuLP
#   calls optimal: a schedule that is merely the best one so far.
# Run: bash findings/pulp_calls_a_time_limit_optimal.sh   (some 40 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q PuLP==3.3.2 highspy==1.16.0 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import random

import pulp

ITEMS, ROWS = 50, 6


def solved(solver):
    """Choose items whose sums in every row miss those of a planted choice by as little as can be: by 0."""
    draw = random.Random(1)
    weights = [[draw.randrange(100) for _ in range(ITEMS)] for _ in range(ROWS)]
    planted = [draw.randrange(2) for _ in range(ITEMS)]
    problem = pulp.LpProblem("split", pulp.LpMinimize)
    chosen = [pulp.LpVariable(f"x{i}", cat="Binary") for i in range(ITEMS)]
    missed = [pulp.LpVariable(f"s{row}", 0) for row in range(ROWS)]
    problem += pulp.lpSum(missed)
    for row, miss in zip(weights, missed, strict=True):
        target = sum(w * p for w, p in zip(row, planted, strict=True))
        gap = pulp.lpSum(w * x for w, x in zip(row, chosen, strict=True)) - target
        problem += gap <= miss
        problem += -gap <= miss
    status = pulp.LpStatus[problem.solve(solver)]
    return status, round(pulp.value(problem.objective)), problem.sol_status


seen = {
    "CBC": solved(pulp.PULP_CBC_CMD(msg=False, timeLimit=2)),
    "HiGHS": solved(pulp.HiGHS(msg=False, timeLimit=2)),
}
said = "; ".join(f"{name}: {status} at {value}, sol_status {own}" for name, (status, value, own) in seen.items())
print(f"seen: the optimum is 0. After 2 s PuLP says with {said}")
for status, value, own in seen.values():
    assert status == "Optimal"
    assert value > 0
    assert own == pulp.LpSolutionIntegerFeasible != pulp.LpSolutionOptimal
PY
"$work/venv/bin/python" "$work/look.py" | grep -v "HiGHS 1\|third-party"
