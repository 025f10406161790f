"""Deals to replicas: a production job, and synthetic lengths.

python -m experiments.replicas.run se TRACE.json.gz [--limit S]
python -m experiments.replicas.run packed|whole [--limit S] [--cases N]

Writes results/*.csv, and prints a row as each case ends.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

import pipesat

HERE = Path(__file__).parent / "results"
RULES = ("as given", "dealt in turn", "Megatron", "torchtitan", "Karmarkar-Karp", "verl")
KINDS = ("normal", "tail", "two points")
SIZES = [(2, 4), (8, 4), (64, 4), (256, 4), (2, 16), (8, 16), (64, 16), (256, 16)]
SIZES += [(2, 64), (8, 64), (64, 64), (256, 64)]


def written(name: str, rows: list[dict[str, Any]]) -> None:
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0]])
        table.writeheader()
        table.writerows(rows)


def about(found: Any) -> dict[str, Any]:
    """Value, bound and gap, and by how much each rule is longer."""
    rules = {row.name: row.value for row in found.rules}
    beside = {name: rules[name] and round(rules[name] / found.value - 1, 4) for name in RULES}
    gap = round(1 - found.lower_bound / found.value, 5)
    source = found.lower_bound_source
    return {"value": found.value, "bound": found.lower_bound, "gap": gap, "source": source} | beside


def se(path: str, limit: float) -> None:
    """Whole microbatches of job SE, dealt anew: 32 replicas of 8, two stages, measured times."""
    events = json.loads(gzip.decompress(Path(path).read_bytes()))
    ops = [e for e in events if e["name"] in ("forward-compute", "backward-compute")]
    ranks: dict[int, list[int]] = {}
    for e in ops:
        ranks[e["pid"]] = sorted({*ranks.get(e["pid"], ()), e["tid"]})
    rows = []
    for step in sorted({e["args"]["step"] for e in ops}):
        found: dict[tuple[int, int], dict[str, Any]] = {}
        for e in ops:
            if e["args"]["step"] == step:
                stage = str(ranks[e["pid"]].index(e["tid"]))
                own = found.setdefault((e["pid"], e["args"]["mb_id"]), {})
                key = "F" if e["name"].startswith("f") else "BW"
                own.setdefault(stage, {})[key] = round(e["dur"])
        entries = [
            {"name": f"{replica}.{n}", "count": 1, "stages": stages}
            for (replica, n), stages in sorted(found.items())
        ]
        stages = {"F": 1, "B": 1, "W": 1, "backward": "fused", "time_unit": "us"}
        problem = pipesat.Problem.chain(2, entries, **stages)
        deal = pipesat.balance(problem, replicas=32, time_limit=limit)
        row = about(deal)
        rows.append({"step": step, **row, "below as run": round(1 - 1 / (1 + row["as given"]), 4)})
        print(rows[-1], flush=True)
    written("se", rows)
    print("median below as run", median(r["below as run"] for r in rows))
    print("mean gap", mean(r["gap"] for r in rows))


def lengths_of(kind: str, count: int, chance: np.random.Generator) -> np.ndarray:
    if kind == "normal":
        found = np.clip(chance.normal(1, 0.5, count), 0.05, None)
    elif kind == "tail":
        found = chance.lognormal(0, 1, count)
    else:
        found = chance.choice([1, 8], count, p=[0.8, 0.2])
    return np.maximum(1, found * 1000).astype(int)


def synthetic(name: str, limit: float, cases: int | None) -> None:
    """Four stages; sequences of at most a quarter of a microbatch packed, or whole ones dealt."""
    rows = []
    every = [(kind, size) for kind in KINDS for size in SIZES]
    for number, (kind, (replicas, m)) in enumerate(every[:cases]):
        chance = np.random.default_rng(number)
        count = replicas * m * (8 if name == "packed" else 1)
        lengths = lengths_of(kind, count, chance)
        tokens = None
        if name == "packed":
            while lengths.max() > lengths.sum() / (replicas * m) / 4:  # the longest are cut, or
                if kind == "two points":  # there are more of them
                    lengths = np.concatenate([lengths, lengths_of(kind, count // 4, chance)])
                else:
                    lengths = np.minimum(lengths, int(lengths.sum() / (replicas * m) / 4))
                    lengths[lengths.argmax()] -= 1
            tokens = int(lengths.sum() / (replicas * m) * 1.1)
        problem = pipesat.Problem.chain(4, m, F=1000, B=1000, W=1000)
        began = time.perf_counter()
        deal = pipesat.balance(
            problem,
            lengths=lengths.tolist(),
            reference=1000,
            replicas=replicas,
            tokens=tokens,
            time_limit=limit,
        )
        seconds = round(time.perf_counter() - began, 1)
        case = {"kind": kind, "R": replicas, "m": m, "sequences": len(lengths), "s": seconds}
        rows.append(case | about(deal))
        print(rows[-1], flush=True)
    if cases is not None:
        return
    written(name, rows)
    for few, what in ((True, "m = 4"), (False, "m >= 16")):
        gaps = [row["gap"] for row in rows if (row["m"] == 4) == few]
        print(name, what, "mean gap", round(mean(gaps), 4), "largest", max(gaps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("se", "packed", "whole"))
    parser.add_argument("trace", nargs="?", help="of job SE")
    parser.add_argument("--limit", type=float, default=8.0, help="seconds of each deal")
    parser.add_argument("--cases", type=int, help="at most so many; then nothing is written")
    options = parser.parse_args()
    if options.what == "se":
        se(options.trace, options.limit)
    else:
        synthetic(options.what, options.limit, options.cases)


if __name__ == "__main__":
    main()
