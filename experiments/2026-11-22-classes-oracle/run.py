"""Compare model, relaxations and solves with the oracle for microbatches that differ."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from tests.support.class_claims import wrong_of_model, wrong_of_solve  # noqa: E402
from tests.support.class_documents import (  # noqa: E402
    chunked_document,
    paired_document,
    random_document,
)
from tests.support.class_oracle import Oracle  # noqa: E402

FOLDER = Path(__file__).parent
MOST_OF_SPAN = 30  # seeds of the first kind whose span is tried as well


DRAWN = {"small": random_document, "chunked": chunked_document, "paired": paired_document}


def main(small: int, chunked: int, paired: int, name: str) -> None:
    """Print and write what so many seeds of each kind come to."""
    path = FOLDER / name
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    cases: list[tuple[str, int, Objective]] = [
        *(("small", seed, "makespan") for seed in range(small)),
        *(("small", seed, "span") for seed in range(min(small, MOST_OF_SPAN))),
        *(("chunked", seed, "makespan") for seed in range(chunked)),
        *(("paired", seed, "makespan") for seed in range(paired)),
    ]
    for kind, seed, objective in cases:
        document = DRAWN[kind](seed)
        for stage in document["stages"]:
            stage.pop("held_in_backward", None)  # neither model nor search knows it
        problem = parse_problem(document)
        optimum = Oracle(document).optimum(objective)
        found = wrong_of_model(problem, optimum, objective)
        found += wrong_of_solve(problem, optimum, objective)
        wrong += [f"{kind} {seed} {objective}: {text}" for text in found]
        classes = problem.routes[0].definitions
        counts.update(
            [
                "problems",
                f"{kind}, {objective}",
                f"order {problem.order}",
                f"{len(classes)} classes",
                "infeasible" if optimum is None else "feasible",
                "wrong" if found else "right",
            ]
        )
        write(path, counts, wrong)
    print(path.read_text(), end="")
    if wrong:
        raise SystemExit(1)


def write(path: Path, counts: Counter[str], wrong: list[str]) -> None:
    """Keep what has come out so far."""
    text = json.dumps({"counts": dict(sorted(counts.items())), "wrong": wrong}, indent=1) + "\n"
    path.write_text(text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4])
