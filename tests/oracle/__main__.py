"""Hold pipesat against the oracle on more problems than CI does.

    python -m tests.oracle --family pairs --seeds 1000
    python -m tests.oracle --family mixtures --seeds 200 --first 5000 --claims solve --seconds 2

Exits with 1 if anything is wrong; each line names the seed, so that it can be asked again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import product
from typing import Any

from tests.oracle import hang_claims, period_claims, plan_claims
from tests.oracle.claims import CLAIMS, OBJECTIVES
from tests.oracle.generator import FAMILIES, of_family


def main() -> int:
    """Ask every question of every problem, and print what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--family", choices=[*FAMILIES, "plans", "hangs", "periods"], required=True)
    parser.add_argument("--seeds", type=int, default=100, help="how many problems")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--claims", nargs="+", choices=[*CLAIMS], help="which; default: all")
    parser.add_argument("--seconds", type=float, default=0.2, help="deterministic, of a solve")
    told = parser.parse_args()
    done: Counter[str] = Counter()
    for seed in range(told.first, told.first + told.seeds):
        for name, wrong in _asked(told, seed):
            done[name] += 1
            done[f"{name}: wrong"] += bool(wrong)
            for what in wrong:
                print(f"{told.family} {seed}, {name}: {what}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(done.items())))
    return any(count for name, count in done.items() if name.endswith("wrong"))


def _asked(told: argparse.Namespace, seed: int) -> list[tuple[str, list[str]]]:
    if told.family == "plans":
        return [("plan", plan_claims.wrong_of_seed(seed))]
    if told.family == "periods":
        return [("period", period_claims.wrong_of_seed(seed))]
    if told.family == "hangs":
        return [("verdict", hang_claims.wrong_of_seed(seed))]
    document = of_family(told.family, seed)
    found: list[tuple[str, list[str]]] = []
    for claim, objective in product(told.claims or applicable(document), OBJECTIVES):
        more: dict[str, Any] = {"seconds": told.seconds} if claim == "solve" else {}
        found.append((claim, [*CLAIMS[claim](document, objective, **more)]))
    return found


def applicable(document: dict[str, Any]) -> list[str]:
    """Claims that can be made of a problem: the whole model has no modes, and no x."""
    named = {key for stage in document["stages"] for key in stage}
    plain = named.isdisjoint({"modes", "held_in_backward"})
    return [name for name in CLAIMS if plain or name != "model"]


if __name__ == "__main__":
    sys.exit(main())
