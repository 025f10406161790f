"""Spans of single routes that CP-SAT proves, against exact optima.

    python experiments/2026-11-27-span-window/run.py [PROBLEMS] [FIRST_SEED]

Problems of one route, any placement and little memory, half of them with many ops of length zero.
They are solved without closed forms, and every run with a memory limit counts as long: relaxations,
short runs, stretches and the whole model prove what is proven. The optima come from models that
share no code with pipesat's, none of many ops.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.core.errors import BadInput, NotApplicable  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from pipesat.heuristics.list_scheduling import list_scheduling  # noqa: E402
from pipesat.solver import SolveOptions, solve  # noqa: E402
from pipesat.solver.options import ALL_PARTS  # noqa: E402
from pipesat.solver.proof import short_runs  # noqa: E402
from tests.support.against_oracle import least_value  # noqa: E402
from tests.support.oracle import plain_model_optimum  # noqa: E402

ALL = replace(ALL_PARTS, closed_forms=False, windows=False, packing=False, growth=False)
PARTS = {
    "all": ALL,
    "no relaxations": replace(ALL, relaxations=False),
    "short runs alone": replace(ALL, relaxations=False, stretches=False),
}
EFFORT = 1.0  # deterministic time of the model by instants
MOST_OPS = 12  # plain models take long to find the least span of more
SECONDS = 4.0  # of CP-SAT's deterministic time


def main() -> None:
    """Print every bound above an optimum, and how many were equal to it."""
    path = HERE.parent / "2026-11-24-memory-waits" / "run.py"
    spec = importlib.util.spec_from_file_location("memory_waits", path)
    assert spec is not None
    assert spec.loader is not None
    waits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(waits)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 900
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    short_runs._PER_DEVICE = 0  # all are long
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        if seed % 3 == 2:
            continue  # lists
        document = waits.drawn(seed)
        try:
            problem = parse_problem(document)
            start = list_scheduling(problem)
        except (BadInput, NotApplicable):
            continue
        if seed % 3 == 0 and problem.op_count > MOST_OPS:
            continue
        if seed % 3:
            optimum, decided = least_value(document, "span", None, EFFORT)
        else:
            optimum, decided = plain_model_optimum(problem, "span"), True
        if optimum is None or not decided:
            found["infeasible or undecided"] += 1
            continue
        for name, parts in PARTS.items():
            options = SolveOptions(
                objective="span",
                time_limit=SECONDS,
                deterministic=True,
                parts=parts,
                starts="none",
                schedules=[start],
            )
            result = solve(problem, options)
            bound, value = result.bound, result.value
            if bound is None or value is None:
                found["without a schedule"] += 1
                continue
            wrong = bound.value > optimum or value < optimum or result.warnings
            found[f"{name}: {'proven' if bound.value == optimum else 'below'}"] += 1
            if wrong:
                found["wrong"] += 1
                print(seed, name, bound, value, optimum, result.warnings, flush=True)
        if seed % 30 == 0:
            print(seed, dict(found), flush=True)
    print(dict(found))


if __name__ == "__main__":
    main()
