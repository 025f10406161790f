"""Hold bounds and the search of problems with memory modes against the oracle."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import pipesat  # noqa: E402
from pipesat.bounds.modes import counted_bounds  # noqa: E402
from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from tests.support.oracle_by_instants import solve  # noqa: E402
from tests.support.tiny_modes import tiny  # noqa: E402

MOST_STAGES_TIMES_MICROBATCHES = 4
SECONDS = 0.1  # of deterministic time


def main(first: int, last: int) -> None:
    """Print and write what the seeds from ``first`` to before ``last`` come to."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        names = compare(seed)
        counts.update(names)
        if wrong := [name for name in names if name.endswith("!")]:
            print(seed, *wrong, flush=True)
    text = json.dumps({"seeds": [first, last]} | dict(sorted(counts.items())), indent=1) + "\n"
    print(text, end="")
    (Path(__file__).parent / "solve.json").write_text(text)
    if any(name.endswith("!") for name in counts):
        raise SystemExit(1)


def compare(seed: int) -> list[str]:
    """Name what holds of one problem; what must never hold ends in ``!``."""
    document = tiny(Random(seed))
    problem = parse_problem(document)
    if sum(problem.microbatches) > MOST_STAGES_TIMES_MICROBATCHES:
        return []
    objective: Objective = "span" if seed % 3 == 0 else "makespan"
    result = pipesat.solve(problem, objective=objective, deterministic=True, time_limit=SECONDS)
    if result.value is None:
        return ["infeasible" if solve(document, objective) is None else "feasibility!"]
    found = solve(document, objective, at_most=result.value)
    if found is None:
        return ["better than the optimum!"]
    best = found.value
    names = ["problems", f"{objective}s"]
    if result.warnings:
        names.append("a warning!")
    if result.value > best:
        names.append("longer than the optimum")
    counted = [one.value for one in counted_bounds(problem, objective)]
    bound = max(*counted, result.lower_bound, 0)
    if bound > best:
        names.append("false bound!")
    if result.status == "optimal":
        names.append("proven")
    return names


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
