"""Hold the models with memory over time against the oracle: the whole problem, each device alone.

``python models.py FIRST LAST``: a seed draws a problem (tests/support/mixtures.py) and adds two
lines to models.jsonl, one per objective, unless they are there; prints the counts, and what is
false.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pipesat.core.schedule import Objective  # noqa: E402
from tests.support.mixture_claims import wrong_of_models_over_time  # noqa: E402
from tests.support.mixtures import mixture  # noqa: E402
from tests.support.oracle_by_instants import Undecided  # noqa: E402

CASES = Path(__file__).parent / "models.jsonl"
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def main(first: int, last: int) -> None:
    """Run seeds, then count all lines; exit 1 if anything is false."""
    done = {(case["seed"], case["objective"]) for case in _cases()}
    with CASES.open("a") as file:
        for seed in range(first, last):
            drawn = mixture(Random(seed))
            for objective in OBJECTIVES:
                if (seed, objective) in done:
                    continue
                try:
                    wrong = wrong_of_models_over_time(drawn.document, objective)
                except Undecided:
                    wrong = ["undecided"]
                line = {"seed": seed, "objective": objective, "mixes": drawn.label, "wrong": wrong}
                print(json.dumps(line), file=file, flush=True)
    cases = _cases()
    undecided = [case for case in cases if case["wrong"] == ["undecided"]]
    false = [case for case in cases if case["wrong"] and case not in undecided]
    print(len(cases), "cases", len(undecided), "undecided", len(false), "false")
    print(Counter(case["mixes"] for case in cases).most_common())
    for case in false:
        print(case)
    if false:
        raise SystemExit(1)


def _cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
