"""``run --verify``: passes where torch trains the order as one process does, and only there."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from campaign.case import Case
from campaign.commands.common import family_of
from campaign.problems.models import PARAMETERS, model

FAMILIES = {  # types of numbers, and faults
    "16-bit": (("bfloat16", "bfloat16", "float16"), ("lost",)),
    "untrained": (
        ("float64", "float32", "bfloat16"),
        ("put away", "put away", "unused", "frozen", "lost"),
    ),
}
LIMITS = {"float64": 1e-10, "float32": 1e-4, "float16": 2.5e-3, "bfloat16": 2e-2}
OPTIONS = ("--verify", "--json", "--steps", 1, "--steps", "warm_up=1", "--steps", "timeout=240")


def case(case: Case) -> None:
    rng = case.rng
    devices = rng.choice([2, 2, 3])
    homes = rng.choice([[*range(devices)], [*range(devices), *reversed(range(devices))]])
    m, stages = rng.randint(2, 5), len(homes)
    case.write("problem.json", a_problem(homes, devices, m))
    case.write("order.csv", an_order(rng, homes, devices, m))
    dtypes, kinds = FAMILIES[family_of(case)]
    dtype = rng.choice(dtypes)
    faults = {s: rng.choice(kinds) for s in range(stages) if rng.random() < 0.4}
    case.write("mine.py", model(rng, dtype, faults, m))
    case.run("export", "problem.json", "order.csv", "--to", "schedule", "-o", "s.json")
    words = ("run", "problem.json", "s.json", "--model", "mine.py", "-o", "t.json", *OPTIONS)
    ran = case.run(*words, codes=(0, 1), hang=300)
    said = (ran.json() or {}).get("check")
    if case.expect(said is not None, f"no check: {ran.err}"):
        rows = json.loads((case.folder / "t.json").read_text())["steps"][0]["devices"]
        judge(case, said, ran.code, dtype, faults, (stages, m, split_of(rows)))
        case.notes.add("exact")


def judge(
    case: Case,
    said: dict[str, Any],
    code: int,
    dtype: str,
    faults: dict[int, str],
    shape: tuple[int, int, dict[int, int]],
) -> None:
    """Hold a check against the faults that were planted."""
    stages, m, split = shape
    away = {s for s, fault in faults.items() if fault == "put away" and split.get(s)}
    untrained = {f"stage {s}'s spare" for s, fault in faults.items() if fault == "unused"}
    untrained |= {f"stage {s}'s scale" for s in away if split[s] == m}  # of no microbatch
    passes = not untrained and not away and "lost" not in faults.values()
    error = said["largest_relative_error"]
    told = f"{dtype}, {faults}, splits {split}: {said}, exit code {code}"
    case.expect(said["passed"] == passes == (code == 0), f"expected {passes}: {told}")
    case.expect(set(said["untrained"]) == untrained, f"expected {untrained}: {told}")
    case.expect(said["tolerance"] == LIMITS[dtype], f"another tolerance: {told}")
    frozen = sum(fault == "frozen" for fault in faults.values())
    compared = m + stages * len(PARAMETERS) - frozen
    case.expect(said["compared"] == compared, f"expected {compared} numbers compared: {told}")
    if passes:  # 16 bits: one process adds as the run did; float32 losses go through m and back
        most = 1e-6 if dtype.endswith("16") else LIMITS[dtype]
        case.expect(error is not None and error <= most, f"expected at most {most}: {told}")


def split_of(rows: list[dict[str, Any]]) -> dict[int, int]:
    """Count, per stage, the microbatches whose backward ran split."""
    found: dict[int, int] = {}
    for text in (op[0] for row in rows for op in row["ops"]):
        stage, w, _ = text.partition("W")
        if w and stage.isdecimal():
            found[int(stage)] = found.get(int(stage), 0) + 1
    return found


def a_problem(homes: list[int], devices: int, m: int) -> dict[str, Any]:
    stages = [{"device": home, "F": 2, "B": 2, "W": 2, "BW": 5} for home in homes]
    return {
        "format": "pipesat.problem/1",
        "microbatches": m,
        "devices": [{}] * devices,
        "stages": stages,
    }


def an_order(rng: Random, homes: list[int], devices: int, m: int) -> str:
    """Draw an order that torch runs: any that waits for its inputs, the last F's in turn."""
    last = len(homes) - 1
    habit = [0.0, *(rng.choice([0.0, 0.5, 1.0, 1.0]) for _ in homes[1:])]
    waiting = []
    for s in range(len(homes)):
        for i in range(m):
            waiting += [(s, x, i) for x in ("FIW" if rng.random() < habit[s] else "FB")]
    done: set[tuple[int, str, int]] = set()
    rows: list[list[str]] = [[] for _ in range(devices)]

    def ready(s: int, letter: str, i: int) -> bool:
        if letter == "W":
            return (s, "I", i) in done
        if letter == "F":
            before = not s or (s - 1, "F", i) in done
            return before and (s < last or not i or (s, "F", i - 1) in done)
        after = s == last or not done.isdisjoint({(s + 1, "I", i), (s + 1, "B", i)})
        return after and (s, "F", i) in done

    while waiting:
        action = rng.choice([action for action in waiting if ready(*action)])
        waiting.remove(action)
        done.add(action)
        s, letter, i = action
        rows[homes[s]].append(f"{s}{letter}{i}")
    return "".join(",".join(row) + "\n" for row in rows)
