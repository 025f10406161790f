"""Hold the CP-SAT model of the whole problem, with modes, against the oracle."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pipesat.files.problem_file import parse_problem  # noqa: E402
from tests.support.optimum import least_schedule  # noqa: E402
from tests.support.oracle_by_instants import optimum  # noqa: E402
from tests.support.tiny_modes import tiny  # noqa: E402

FAR = 60  # no optimum of these problems is longer
MOST_STAGES_TIMES_MICROBATCHES = 4


def main(first: int, last: int) -> None:
    """Print and write what the seeds from ``first`` to before ``last`` come to."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        document = tiny(Random(seed))
        problem = parse_problem(document)
        if sum(problem.microbatches) > MOST_STAGES_TIMES_MICROBATCHES:
            continue
        counts["problems"] += 1
        found, _ = least_schedule(problem, FAR) or (None, None)
        right = found == optimum(document, at_most=found)
        name = "wrong!" if not right else "infeasible" if found is None else "the oracle's optimum"
        in_order, _ = least_schedule(problem, FAR, one_order=True) or (None, None)
        if found is not None:
            counts["in one order, as short" if in_order == found else "in one order, longer"] += 1
        counts[name] += 1
        if not right:
            print(seed, name, flush=True)
    text = json.dumps({"seeds": [first, last]} | dict(sorted(counts.items())), indent=1) + "\n"
    print(text, end="")
    (Path(__file__).parent / "whole.json").write_text(text)
    if counts["wrong!"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
