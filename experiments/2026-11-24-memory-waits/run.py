"""Bounds of a known order, with what memory makes forwards wait for, against exact optima.

    python experiments/2026-11-24-memory-waits/run.py [PROBLEMS] [FIRST_SEED]

Of three problems, two have one route, any placement and little memory, one of these many ops of
length zero; the third has a list of microbatches that differ, in an order that is given. The bound
is worked out wherever it holds, not only where it may help. The optima come from models that share
no code with pipesat's.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.bounds import given_order  # noqa: E402
from pipesat.bounds.closed_form import closed_forms  # noqa: E402
from pipesat.core.errors import BadInput  # noqa: E402
from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from tests.support.against_oracle import least_value  # noqa: E402
from tests.support.class_documents import tight_chain_document  # noqa: E402
from tests.support.class_oracle import Oracle  # noqa: E402
from tests.support.oracle import plain_model_optimum  # noqa: E402
from tests.support.zero_lengths import random_document  # noqa: E402

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
MOST_OPS, EFFORT = 15, 0.5


def drawn(seed: int) -> dict[str, Any]:
    """Draw a problem of one route and little memory."""
    if seed % 3 == 2:
        return tight_chain_document(seed) | {"order": "given"}
    rng = Random(seed)
    document = random_document(rng, zeros=seed % 3 == 1)
    document.pop("routes", None)
    for stage in document["stages"] if seed % 3 != 1 else ():
        stage.pop("held_in_backward", None)
    most = min(5, MOST_OPS // (3 * len(document["stages"])))
    document["microbatches"] = rng.randint(2, max(2, most))
    return document


def optimum_of(document: dict[str, Any], objective: Objective, seed: int) -> int | None:
    """Of a model with lists, of one of instants where ops may take no time, or of intervals."""
    if seed % 3 == 2:
        return Oracle(document).optimum(objective)
    if seed % 3 == 1:
        return least_value(document, objective, None, EFFORT)[0]
    return plain_model_optimum(parse_problem(document), objective)


def main() -> None:
    """Print every bound above an optimum, and how many were equal to it or beat all others."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 900
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    given_order._memory_slows_down = bool  # of any problem: true
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        document = drawn(seed)
        try:
            problem = parse_problem(document)
        except BadInput:
            continue
        if seed % 50 == 49:
            print(seed + 1, dict(found), flush=True)
        for objective in OBJECTIVES:
            bounds = given_order.bounds_of_given_order(problem, objective)
            optimum = optimum_of(document, objective, seed) if bounds else None
            if optimum is None:
                found["infeasible, undecided or without a bound"] += 1
                continue
            least = max(bound.value for bound in bounds)
            names = {bound.source for bound in bounds}
            all_others = [b for b in closed_forms(problem, objective) if b.source not in names]
            found[f"{objective} judged"] += 1
            found[f"{objective} equal"] += least == optimum
            found[f"{objective} above all others"] += least > max(b.value for b in all_others)
            if least > optimum:
                found["wrong"] += 1
                print(f"seed {seed}, {objective}: {least} above {optimum}", flush=True)
    print(dict(found), flush=True)
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
