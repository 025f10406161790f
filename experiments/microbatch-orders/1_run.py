"""Time every case under the rules and search it briefly; goes on where it was stopped.

python experiments/microbatch-orders/1_run.py [LIMIT of each search]

The limit is in the search's own time, so results do not depend on the load; 0.5 is one to seven
seconds of one core.
"""

from __future__ import annotations

import csv
import sys
import time

from cases import RESULTS, WAYS, Case, cases, known, problem_of

from pipesat.core.checker import check
from pipesat.core.microbatch_order import permuted, relabelled
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics import BASELINES
from pipesat.heuristics.list_scheduling import list_schedules, policies
from pipesat.heuristics.microbatch_orders import entered_by, permutation_by
from pipesat.solver.driver import solve

SCHEDULES = ("1f1b", "zb-h1", "zb-h2")
POLICIES = 2  # of list scheduling, the usually best


def main(limit: float) -> None:
    """Append a line per case."""
    done = known()
    for case in cases():
        if case in done:
            continue
        begin = time.monotonic()
        problem = problem_of(case)
        under = {rule: best_under(problem, rule) for rule in WAYS[:-1]}
        starts = sorted(under.values(), key=lambda schedule: schedule.makespan)
        result = solve(problem, time_limit=limit, warm_starts=starts, deterministic=True)
        makespans = {rule: schedule.makespan for rule, schedule in under.items()}
        write(case, makespans | {"ours": result.value, "bound": result.lower_bound})
        print(*case, makespans, result.value, result.lower_bound, end=" ", flush=True)
        print(f"{time.monotonic() - begin:.1f} s", flush=True)


def best_under(problem: Problem, rule: str) -> Schedule:
    """Return the shortest of some hand-written schedules that fits, in one order."""
    permutation = permutation_by(problem, rule)
    made = [entered_by(BASELINES[name], problem, rule, permutation) for name in SCHEDULES]
    entering = permuted(problem, permutation)
    for schedule in list_schedules(entering, chosen=list(policies(entering))[:POLICIES]):
        order = relabelled(problem, schedule.order, permutation)
        made.append(time_order(problem, order, source=f"list-scheduling, {rule}"))
    by_makespan = sorted(made, key=lambda schedule: schedule.makespan)
    return next(schedule for schedule in by_makespan if not check(problem, schedule))


def write(case: Case, values: dict[str, int]) -> None:
    """Append a case to the results."""
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow([*Case._fields, *WAYS, "bound"])
        writer.writerow([*case, *(values[name] for name in (*WAYS, "bound"))])


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
