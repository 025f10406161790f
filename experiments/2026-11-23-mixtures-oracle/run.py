"""Hold checker, bounds and search of mixtures against the oracle, for both objectives.

``python run.py FIRST LAST [-j N] [--seconds S]``: a seed draws a problem
(tests/support/mixtures.py) and adds two lines to cases.jsonl; seeds that are there are not run
again. Without numbers, only prints the counts of what is there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "experiments")]

from campaign.judge.reading import digest, pipe_of  # noqa: E402
from campaign.judge.rules import broken_rules  # noqa: E402

from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.schedule_file import schedule_bytes  # noqa: E402
from tests.support.mixture_claims import held_against_oracle  # noqa: E402
from tests.support.mixtures import mixture  # noqa: E402

CASES = Path(__file__).parent / "cases.jsonl"
EFFORT = 20.0  # deterministic seconds of the oracle
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def main() -> None:
    """Run what is asked for and print the counts; exit 1 if anything is false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=0)
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="deterministic, per solve")
    given = parser.parse_args()
    done = {case["seed"] for case in _cases()}
    seeds = [seed for seed in range(given.first, given.last) if seed not in done]
    with ProcessPoolExecutor(given.j) as pool, CASES.open("a") as file:
        coming = [pool.submit(compare, seed, given.seconds) for seed in seeds]
        for found in as_completed(coming):
            file.write("".join(json.dumps(case) + "\n" for case in found.result()))
            file.flush()
    _print(_cases())


def compare(seed: int, seconds: float) -> list[dict[str, Any]]:
    """Name what holds of a seed's problem, by objective; what must never hold ends in ``!``."""
    drawn = mixture(Random(seed))
    found = []
    for objective in OBJECTIVES:
        names, result = held_against_oracle(drawn.document, objective, seconds, EFFORT)
        if result.schedule is not None:
            written = json.loads(schedule_bytes(result.problem, result.schedule))
            sha256 = digest(drawn.document)
            broken = broken_rules(pipe_of(drawn.document), sha256, written)
            names += [f"the judge says {what}!" for what in broken]
        label = {"mixes": drawn.label, "placement": drawn.placement}
        found.append({"seed": seed, "objective": objective} | label | {"names": names})
    return found


def _cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


def _print(cases: list[dict[str, Any]]) -> None:
    """Print a row per combination, per placement and objective, and for all; then what is false."""
    columns = ["cases", "infeasible", "undecided", "at the optimum", "proven", "false"]
    rows: dict[str, Counter[str]] = {}
    for group in ("mixes", "placement", "objective", ""):
        for case in sorted(cases, key=lambda case: str(case.get(group))):
            counts = rows.setdefault(str(case.get(group, "all")), Counter())
            names = {"false" if name.endswith("!") else name for name in case["names"]}
            counts.update({"cases", *names})
    print("| " + " | ".join(["", *columns]) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, counts in rows.items():
        print("| " + " | ".join([name, *(str(counts[column]) for column in columns)]) + " |")
    wrong = [case for case in cases if any(name.endswith("!") for name in case["names"])]
    for case in wrong:
        print(json.dumps(case))
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
