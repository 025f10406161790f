"""Closed forms where a fused backward is shorter than its halves, against exact optima.

    python experiments/2026-11-26-way-home/run.py [PROBLEMS] [FIRST_SEED]

Any placement, one or two routes, memory or none. The optima come from a model that shares no code
with pipesat's.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.bounds.closed_form import closed_form_bound  # noqa: E402
from pipesat.core.errors import BadInput, Infeasible  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from tests.support.oracle import plain_model_optimum  # noqa: E402
from tests.support.zero_lengths import random_document  # noqa: E402

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def drawn(seed: int) -> Problem:
    """Draw a small problem whose fused backwards are shorter, on most stages."""
    rng = Random(seed)
    document = random_document(rng, zeros=False)
    for stage in document["stages"]:
        stage.pop("held_in_backward", None)
        stage["BW"] = stage["B"] + rng.randint(0, stage["W"])
        stage["backward"] = rng.choice(["either", "either", "split", "fused"])
    if rng.random() < 0.3:
        document["devices"] = [{} for _ in document["devices"]]
    return parse_problem(document)


def main() -> None:
    """Print every bound above an optimum, and how many were equal to it, by what they argue."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            problem = drawn(seed)
        except BadInput:
            continue
        for objective in OBJECTIVES:
            try:
                bound = closed_form_bound(problem, objective)
            except Infeasible:
                continue
            optimum = plain_model_optimum(problem, objective)
            if optimum is None:
                continue
            found[f"{objective} judged"] += 1
            found[f"{objective} equal"] += bound.value == optimum
            if "+ end" in bound.source:
                found[f"{objective} by the end"] += 1
                found[f"{objective} by the end, equal"] += bound.value == optimum
            if bound.value > optimum:
                found["wrong"] += 1
                print(f"seed {seed}, {objective}: {bound} above {optimum}", flush=True)
    print(dict(found), flush=True)
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
