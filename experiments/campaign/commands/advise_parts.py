"""``advise --parts``: stages and pairs held against every order of their parts, rows and bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from campaign.case import Case
from campaign.commands.common import family_of, schedule_in
from campaign.judge import values
from campaign.judge.claims import Judged
from campaign.judge.exact import Truth, exact
from campaign.judge.reading import load, pipe_of

_KINDS = ("F", "B", "W", "BW")
_MOST = 2  # layers of a stage of which every order is tried
_Least = Callable[..., int]


def case(case: Case) -> None:
    from tests.support.parts import random_parts

    rng, runtime = case.rng, family_of(case)
    drawn = random_parts(rng)
    chunk = drawn["chunks"][0] | {"repeat": 1}
    count = rng.randint(2, 4)
    parts = {"format": "pipesat.parts/1", "time_unit": "ms", "streams": drawn["streams"]}
    case.write("parts.json", parts | {"chunks": [chunk], "stages": [chunk["name"]] * count})
    entries: list[dict[str, Any]] = [{"role": "block"} for _ in range(count)]
    costs = ["parts.json"]
    if rng.random() < 0.6:
        costs = ["layers.json", "--parts", "parts.json"]
        entries = _layers(case, count)
        if rng.random() < 0.5:
            costs += ["--memory", str(rng.randint(4, 20)), "--memory", "reserve=0"]
    words = ["--devices", 2, "--microbatches", rng.randint(1, 4), "--for", runtime]
    words += ["--link-delay", rng.choice([0, 0, 1]), "--workers", 1, "-o", "out", "--json"]
    ran = case.run("advise", *costs, *words, "--time-limit", 1 if case.quick else 3)
    if not ran.code:
        case.violations += false_advice(case, _least_of(parts, chunk), entries, ran.json())


def _layers(case: Case, count: int) -> list[dict[str, Any]]:
    """Write layers whose blocks have costs that the parts replace; return them all."""
    rng = case.rng
    ends = [
        {"name": role, "role": role, "F": rng.randint(0, 4), "B": rng.randint(0, 4), "W": 1}
        for role in ("embedding", "head")
        if rng.random() < 0.5
    ]
    held = rng.randint(1, 3)
    blocks = [{"role": "block", "F": 99, "B": 99, "W": 99, "held_after_F": held}] * count
    entries = [e for e in ends if e["role"] == "embedding"]
    entries += [*blocks, *(e for e in ends if e["role"] == "head")]
    head = {"format": "pipesat.layers/1", "time_unit": "ms", "memory_unit": "MiB"}
    case.write("layers.json", head | {"layers": entries})
    return entries


def _least_of(parts: dict[str, Any], chunk: dict[str, Any]) -> _Least:
    """Return what finds the least time of ops, each as (layers, kind)."""
    from tests.support.parts import least_by_trying

    known: dict[tuple[tuple[int, str], ...], int] = {}
    sizes = [chunk | {"name": f"{n}", "repeat": n} for n in range(1, _MOST + 1)]

    def least(*ops: tuple[int, str]) -> int:
        asked = tuple((count, kind) for count, kind in ops if count)
        if asked not in known:
            document = parts | {"chunks": sizes}
            known[asked] = least_by_trying(document, [(f"{n}", kind) for n, kind in asked])
        return known[asked]

    return least


def false_advice(
    case: Case, least: _Least, entries: list[dict[str, Any]], said: Any
) -> Iterator[str]:
    """Yield every false statement of advice.json."""
    out, bound, chosen = case.folder / "out", said["lower_bound"], said["chosen"]
    runs = [row["makespan"] for row in said["rows"] if row["runs"]]
    if (chosen is None) != (not runs) or (chosen and chosen["makespan"] != min(runs)):
        yield f"chosen is {chosen and chosen['makespan']}, of those that run {sorted(runs)}"
    if chosen is not None:
        problem = load(out / "problem.json")
        yield from _false_row(least, entries, chosen, problem, schedule_in(out / "schedule.json"))
        free = [{k: v for k, v in stage.items() if k != "backward"} for stage in problem["stages"]]
        wide = problem | {"stages": free} if said["for"] == "megatron" else problem
        truth = exact(pipe_of(wide), "makespan", 1.0 if case.quick else 4.0)
        if truth.exact:
            case.notes.add("exact")
        if bound is None or bound > min(truth.upper or bound, chosen["makespan"]):
            yield f"bound {bound} of the split, though {truth.upper} is possible"
        if (said["status"] == "optimal") != (bound == chosen["makespan"]):
            yield f"status {said['status']} with {chosen['makespan']} and bound {bound}"
    for row in said["rows"]:
        if row["files"] is not None and row["fits"] and row["schedule"] != "offload":
            problem, made = load(out / f"{row['files']}.problem.json"), out / f"{row['files']}.json"
            yield from _false_row(least, entries, row, problem, schedule_in(made))


def _false_row(
    least: _Least,
    entries: list[dict[str, Any]],
    row: Any,
    problem: dict[str, Any],
    schedule: Any,
) -> Iterator[str]:
    name = f"{row['schedule']} ({row['split']} split)"
    yield from (f"{name}: {text}" for text in _false_times(least, entries, row, problem))
    timed, broken = Judged(problem, "makespan", Truth(0)).judge(schedule)
    if timed is None:
        yield f"{name} breaks rules: {broken[:3]}"
    elif values.makespan(timed) != row["makespan"]:
        yield f"{name}: makespan {row['makespan']}, it is {values.makespan(timed)}"


def _false_times(
    least: _Least, entries: list[dict[str, Any]], row: Any, problem: dict[str, Any]
) -> Iterator[str]:
    """Hold a problem's stages and pairs against the parts of their layers."""
    ends = [sum(row["layers_per_stage"][: k + 1]) for k in range(len(row["layers_per_stage"]))]
    cut = [entries[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    blocks = [sum(entry["role"] == "block" for entry in part) for part in cut]
    if max(blocks) > _MOST:
        return

    def others(stage: int, kind: str) -> int:
        own = [entry for entry in cut[stage] if entry["role"] != "block"]
        return sum(entry[k] for entry in own for k in kind)

    times = [{k: least((n, k)) + others(s, k) for k in _KINDS} for s, n in enumerate(blocks)]
    stated = [{k: stage[k] for k in _KINDS} for stage in problem["stages"]]
    if times != stated:
        yield f"stages {stated}, by their parts {times}"
    homes = [stage["device"] for stage in problem["stages"]]
    pairs = {}
    for one, n in enumerate(blocks):
        for two, k in enumerate(blocks):
            if homes[one] == homes[two] and n and k:
                time = least((n, "F"), (k, "BW")) + others(one, "F") + others(two, "BW")
                if time < times[one]["F"] + times[two]["BW"]:
                    pairs[f"{one}F", f"{two}BW"] = time
    listed = {tuple(e["ops"]): e["time"] for e in problem.get("overlap", {}).get("pairs", [])}
    if pairs != listed:
        yield f"pairs {listed}, by their parts {pairs}"
