#!/usr/bin/env bash
# Finding: OR-Tools' graph solvers take arrays of float costs and cut each to an integer, without a word. Of two assignments
#   that cost 2.2 and 3.8 the assignment solver takes that of 3.8, as OPTIMAL at 2. One arc at a time, a float raises TypeError.
# Package: ortools 9.15.6755 (Python: linear_sum_assignment, min_cost_flow and max_flow) with numpy 2.4.6.
# Guess of a good engineer: add_arcs_with_cost is add_arc_with_cost in a loop, so a float that one refuses both refuse, and
#   what is OPTIMAL is so for the costs given.
# Who is hurt: who hands sequences to replicas or layers to devices by times in milliseconds, bytes in GiB or ratios. Costs
#   below 1 are all 0, and any assignment is then called optimal. Multiply and round before.
# Run: bash findings/ortools_graph_arrays_cut_costs_to_integers.sh   (some 60 MB of downloads, half a minute)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ortools==9.15.6755 numpy==2.4.6
cat > "$work/look.py" <<'PY'
import numpy as np
from ortools.graph.python import linear_sum_assignment, max_flow, min_cost_flow

left, right = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
costs = np.array([1.9, 1.1, 1.1, 1.9])

assignment = linear_sum_assignment.SimpleLinearSumAssignment()
assignment.add_arcs_with_cost(left, right, costs)
assert assignment.solve() == assignment.OPTIMAL
chosen = [assignment.right_mate(row) for row in (0, 1)]
truly = costs.reshape(2, 2)[[0, 1], chosen].sum()
said = assignment.optimal_cost()
print(f"assignment: {chosen} is OPTIMAL at {said}; it costs {truly:.1f}, the other one 2.2")

flow = min_cost_flow.SimpleMinCostFlow()
arcs = flow.add_arcs_with_capacity_and_unit_cost(left, right + 2, np.ones(4, int), costs)
units = [flow.unit_cost(int(arc)) for arc in arcs]
most = max_flow.SimpleMaxFlow()
most.add_arcs_with_capacity(np.array([0]), np.array([1]), np.array([1.9]))
capacity = most.capacity(0)
print(f"costs of a flow {costs.tolist()} are {units}; a capacity of 1.9 is {capacity}")

refused = []
for one_by_one in (
    lambda: assignment.add_arc_with_cost(0, 0, 1.9),
    lambda: flow.add_arc_with_capacity_and_unit_cost(0, 2, 1, 1.9),
    lambda: most.add_arc_with_capacity(0, 1, 1.9),
):
    try:
        one_by_one()
    except TypeError:
        refused.append(True)
assert len(refused) == 3
assert (said, round(truly, 1), units, capacity) == (2, 3.8, [1, 1, 1, 1], 1)
print("seen: a float alone is refused, an array of floats is cut to integers")
PY
"$work/venv/bin/python" "$work/look.py"
