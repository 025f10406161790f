"""Deals to replicas: a production job, synthetic lengths, all deals of tiny cases, and speed.

python experiments/replicas/run.py se TRACE.json.gz
python experiments/replicas/run.py packed | whole | oracle | settled | speed
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import sys
import time
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

import pipesat
from pipesat.replicas.dealer import Dealer, replay_of
from pipesat.replicas.replay import costs_of_lengths

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.replicas.test_oracle import best_of_all, taken

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


def se(path: str, limit: float = 10.0) -> None:
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


def synthetic(name: str, limit: float = 8.0) -> None:
    """Four stages; sequences of at most a quarter of a microbatch packed, or whole ones dealt."""
    rows = []
    for number, (kind, (replicas, m)) in enumerate((k, s) for k in KINDS for s in SIZES):
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
        written(name, rows)
    for few, what in ((True, "m = 4"), (False, "m >= 16")):
        gaps = [row["gap"] for row in rows if (row["m"] == 4) == few]
        print(name, what, "mean gap", round(mean(gaps), 4), "largest", max(gaps))


def oracle(count: int = 300) -> None:
    """All deals of tiny cases, by code that shares nothing with the product."""
    wrong, optimal, infeasible = [], 0, 0
    for seed in range(count):
        chance = random.Random(1000 + seed)
        replicas, m = chance.choice(
            [(2, 2), (1, 4), (4, 1), (2, 3), (3, 2), (1, 3), (3, 1), (1, 5)]
        )
        n = chance.randint(6, {3: 9, 4: 9, 5: 7, 6: 6}[replicas * m])
        p = chance.choice([2, 3, 4])
        lengths = [chance.randint(1, 20) for _ in range(n)]
        amounts: dict[str, Any] = {
            key: [chance.randint(1, 9) for _ in range(p)] for key in ("F", "B", "W", "held_after_F")
        }
        memory = chance.choice([None, None, chance.randint(100, 500)])
        comm, share = chance.choice([0, 0, 3]), chance.choice(["0", "0.2", "1"])
        tokens = chance.choice([None, max(*lengths, sum(lengths) // (replicas * m) + 4)])
        problem = pipesat.Problem.chain(p, m, **amounts, memory=memory, comm=comm)
        document = dict(problem.document)
        document["comm"] = document.get("comm") or {"default": 0}
        costs = [taken(document, length, 8, share) for length in lengths]
        rooms = [memory] * p
        truth = best_of_all(costs, lengths, replicas, m, tokens, rooms)
        options: dict[str, Any] = {"replicas": replicas, "tokens": tokens, "time_limit": 3}
        options |= {"lengths": lengths, "reference": 8, "quadratic": Fraction(share)}
        try:
            found = pipesat.balance(problem, **options, deterministic=True)
            value, bounds = found.value, (found.lower_bound, found.any_bound.value)
        except pipesat.Infeasible:
            value, bounds = None, (0, 0)
        infeasible += truth is None
        optimal += truth is not None and value == bounds[0]
        if value != truth or (truth is not None and max(bounds) > truth):
            wrong.append((seed, value, truth, bounds))
            print("WRONG", wrong[-1], flush=True)
    rows = [{"cases": count, "wrong": len(wrong), "proven": optimal, "infeasible": infeasible}]
    written("oracle", rows)
    print(rows[0])


def settled() -> None:
    """Whole microbatches: is it the value's fault or the bound's? All orders; then longer runs."""
    rows = []
    problem = pipesat.Problem.chain(4, 8, F=1000, B=1000, W=1000)
    replay = replay_of(problem, "1f1b", 8)
    orders = np.array([*permutations(range(8))])
    for seed, kind in enumerate(KINDS * 4):
        lengths = lengths_of(kind, 8, np.random.default_rng(seed)).tolist()
        columns = costs_of_lengths(problem, lengths, 1000, 0)[:, replay.columns].T
        best = min(int(replay.makespans(columns[:, part.T]).min()) for part in np.split(orders, 8))
        options: dict[str, Any] = {"lengths": lengths, "reference": 1000, "replicas": 1}
        deal = pipesat.balance(problem, **options, time_limit=2)
        row = {"kind": kind, "seed": seed, "optimum": best, "value over it": deal.value / best - 1}
        rows.append(row | {"bound below it": round(1 - deal.lower_bound / best, 4)})
        print(rows[-1], flush=True)
    written("settled", rows)
    curve = []
    problem = pipesat.Problem.chain(4, 16, F=1000, B=1000, W=1000)
    for kind in KINDS[:2]:
        lengths = lengths_of(kind, 128, np.random.default_rng(5)).tolist()
        for limit in (2, 8, 30, 90):
            options = {"lengths": lengths, "reference": 1000, "replicas": 8}
            deal = pipesat.balance(problem, **options, time_limit=limit)
            curve.append({"kind": kind, "s": limit, "value": deal.value, "gap": deal.standing.gap})
            print(curve[-1], flush=True)
    written("curve", curve)


def speed() -> None:
    """The budgeted mode at three sizes, the first beside each rule; one seed is one answer."""
    rows = []
    for replicas, m, count, budget in (
        (8, 16, 1000, 0.1),
        (32, 16, 4000, 0.5),
        (256, 64, 100_000, 5.0),
    ):
        chance = np.random.default_rng(1)
        lengths = lengths_of("normal", count, chance)
        tokens = int(lengths.sum() / (replicas * m) * 1.15)
        problem = pipesat.Problem.chain(4, m, F=1000, B=1000, W=1000)
        began = time.perf_counter()
        dealer = Dealer(problem, replicas, reference=1000, tokens=tokens)
        made = time.perf_counter() - began
        dealer.deal(lengths.tolist(), budget=budget)
        times = []
        for seed in range(5):
            began = time.perf_counter()
            deal = dealer.deal(lengths.tolist(), seed=seed, budget=budget)
            times.append(time.perf_counter() - began)
        options: dict[str, Any] = {"lengths": lengths.tolist(), "reference": 1000}
        options |= {"replicas": replicas, "tokens": tokens, "time_limit": 8 if count > 9e4 else 3}
        began, worked = time.perf_counter(), time.process_time()
        best = pipesat.balance(problem, **options)
        whole, worked = time.perf_counter() - began, time.process_time() - worked
        rules = [row.value for row in best.rules if row.value is not None]
        row = {"R": replicas, "m": m, "sequences": count, "budget ms": 1000 * budget}
        row |= {"dealer made ms": round(1000 * made), "deal ms": round(1000 * median(times))}
        row |= {"gap": round(1 - best.lower_bound / deal.value, 4)}
        row |= {"best rule's gap": round(1 - best.lower_bound / min(rules), 4) if rules else None}
        row |= {"balance s": round(whole, 1), "of one core s": round(worked, 1)}
        row |= {"its gap": round(best.standing.gap or 0, 4)}
        rows.append(row)
        print(row, flush=True)
    written("speed", rows)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what in ("packed", "whole"):
        synthetic(what)
    else:
        {"se": se, "oracle": oracle, "settled": settled, "speed": speed}[what](*rest)
