"""Hold closed forms against the oracle; on chains at tight memory the model of places, too."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from ortools.sat.python import cp_model  # noqa: E402

from pipesat.bounds.closed_form import closed_form_bounds  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from pipesat.solver.model.places import places_apply, places_model  # noqa: E402
from pipesat.solver.run.runner import FOUND, new_solver  # noqa: E402
from tests.support.class_documents import (  # noqa: E402
    chunked_document,
    random_document,
    tight_chain_document,
)
from tests.support.class_oracle import Oracle  # noqa: E402

DRAWN = (tight_chain_document, random_document, chunked_document)
NEW = ("heads and tails", "around one microbatch", "those around it", "counts around one")


def main(seeds: int) -> None:
    """Write and print how many problems there were, and which bounds are wrong, tight, stronger."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for draw, seed in product(DRAWN, range(seeds)):
        document = draw(seed)
        problem, optimum = parse_problem(document), Oracle(document).optimum("makespan")
        if optimum is None:
            counts["infeasible"] += 1
            continue
        counts[f"order {problem.order}"] += 1
        bounds = closed_form_bounds(problem, "makespan")
        wrong += [f"{seed}: {bound}, {optimum}" for bound in bounds if bound.value > optimum]
        old = [b.value for b in bounds if not any(new in b.source for new in NEW)]
        best = max(bound.value for bound in bounds)
        counts["closed form is the optimum"] += best == optimum
        counts["it was without the new arguments"] += max(old) == optimum
        counts["closed form is better with them"] += best > max(old)
        if draw is tight_chain_document and places_apply(problem):
            counts["places tried"] += 1
            counts["places reach the optimum"] += of_places(problem, optimum, seed, wrong)
    text = json.dumps({"counts": dict(sorted(counts.items())), "wrong": wrong}, indent=1) + "\n"
    (Path(__file__).parent / "chains.json").write_text(text)
    print(text, end="")
    if wrong:
        raise SystemExit(1)


def of_places(problem: Problem, optimum: int, seed: int, wrong: list[str]) -> bool:
    """Whether all devices together rule out what is shorter than the optimum."""
    every = tuple(range(len(problem.stages)))
    wrong += [
        f"{seed}: places of {kept} rule out {optimum}"
        for kept in ((0,), every)
        if new_solver(0).solve(places_model(problem, kept, optimum).cp) not in FOUND
    ]
    shorter = places_model(problem, every, optimum - 1)
    return new_solver(0).solve(shorter.cp) == cp_model.INFEASIBLE


if __name__ == "__main__":
    main(int(sys.argv[1]))
