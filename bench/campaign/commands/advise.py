"""``advise`` on small layers files: every row rebuilt and judged, the bound against all cuts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from campaign.case import Case
from campaign.commands.common import family_of, schedule_in
from campaign.judge import plans, values
from campaign.judge.claims import Judged, false_claims
from campaign.judge.exact import Truth
from campaign.judge.reading import load, pipe_of
from campaign.problems.layered import layers

RUNTIMES = ("torch", "torchtitan", "automodel", "megatron")
SHAPES = ("chain", "vee", "loop")


def case(case: Case) -> None:
    rng, runtime = case.rng, family_of(case)
    document = layers(rng, rng.randint(4, 5)) | {"time_unit": "ms", "memory_unit": "MiB"}
    if whole := rng.random() < 0.5:  # then what torch runs is all that there is
        for layer in document["layers"]:
            layer["fused"] = True
    case.write("layers.json", document)
    question, kept = _question(case, document)
    words = ["--devices", 2, "--microbatches", question.microbatches, "--for", runtime]
    words += ["--link-delay", question.latency, "--workers", 1]
    words += ["--time-limit", 0.3 if case.quick else rng.choice([0.5, 2, 5])]
    if question.memory[0] is not None:
        words += ["--memory", question.memory[0] + kept, "--memory", f"reserve={kept}"]
        if rng.random() < 0.4:
            words += ["--memory", f"copy_bandwidth={rng.choice([100, 1000, 3000])}MiB"]
    ran = case.run("advise", "layers.json", *words, "-o", "out", "--json", codes=(0, 2, 3))
    exact = runtime == "megatron" or whole
    truth = plans.best_plan(question, "makespan", 4.0 if case.quick else 12.0) if exact else None
    if truth is not None and truth.exact:
        case.notes.add("exact")
    if ran.code == 2:
        case.expect(not list(plans.ways(question)), f"refused: {ran.err.strip()}")
    elif ran.code == 3:
        case.expect(truth is None or not truth.feasible, "infeasible, though something is possible")
    else:
        case.violations += false_advice(case, question, runtime, truth, ran.json())


def _question(case: Case, document: dict[str, Any]) -> tuple[plans.Question, int]:
    """Return what is asked, and what `--memory reserve` keeps free besides."""
    rng, entries = case.rng, document["layers"]
    held = sum(entry["held_after_F"] for entry in entries)
    weights = sum(entry["weights"] for entry in entries)
    limited = rng.random() < 0.7
    kept = rng.choice([0, 1, 2]) if limited else 0
    least = document.get("reserve", 0) + weights // 2
    memory = least + rng.randint(1, max(2, 2 * held)) if limited else None
    choose = limited and any("recompute" in entry for entry in entries)
    question = plans.Question(
        layers=entries,
        devices=2,
        microbatches=rng.randint(1, 3),
        memory=[memory] * 2,
        shapes=SHAPES,
        recompute="choose" if choose else "never",
        latency=rng.choice([0, 0, 1]),
        reserve=document.get("reserve", 0),
    )
    return question, kept


def false_advice(
    case: Case,
    question: plans.Question,
    runtime: str,
    truth: Truth | None,
    said: Any,
) -> Iterator[str]:
    """Yield every false statement of advice.json."""
    out = case.folder / "out"
    bound, chosen, rows = said["lower_bound"], said["chosen"], said["rows"]
    if said != load(out / "advice.json") | {"wall_s": said["wall_s"]}:
        yield "--json prints another document than advice.json"
    possible = None if truth is None else truth.upper
    if bound is not None and possible is not None and bound > possible:
        yield f"bound over all cuts {bound}, though {possible} is possible"
    runs = [row["makespan"] for row in rows if row["runs"]]
    if (chosen is None) != (not runs) or (chosen and chosen["makespan"] != min(runs)):
        yield f"chosen is {chosen and chosen['makespan']}, of those that run {sorted(runs)}"
    if chosen is not None:
        if bound is not None and bound > chosen["makespan"]:
            yield f"bound {bound} above the advice {chosen['makespan']}"
        if (said["status"] == "optimal") != (bound == chosen["makespan"]):
            yield f"status {said['status']} with {chosen['makespan']} and bound {bound}"
        problem, schedule = load(out / "problem.json"), schedule_in(out / "schedule.json")
        yield from _false_row(question, runtime, chosen, problem, schedule)
        judged = Judged(problem, "makespan", Truth(0))
        yield from false_claims(judged, load(out / "result.json"), schedule, 0)
    for row in rows:
        if row["files"] is not None and row["fits"] and row["schedule"] != "offload":
            problem, schedule = (
                load(out / f"{row['files']}.problem.json"),
                out / f"{row['files']}.json",
            )
            yield from _false_row(question, runtime, row, problem, schedule_in(schedule))


def _false_row(
    question: plans.Question,
    runtime: str,
    row: Any,
    problem: dict[str, Any],
    schedule: Any,
) -> Iterator[str]:
    """Hold a row's problem against the layers, its figures against its schedule."""
    name = f"{row['schedule']} ({row['split']} split)"
    wanted = pipe_of(expected_problem(question, runtime, row))
    if wanted != pipe_of(problem):
        yield f"{name}: its problem is not that of its cut and flags"
    timed, broken = Judged(problem, "makespan", Truth(0)).judge(schedule)
    if timed is None:
        yield f"{name} breaks rules: {broken[:3]}"
        return
    if values.makespan(timed) != row["makespan"]:
        yield f"{name}: makespan {row['makespan']}, it is {values.makespan(timed)}"
    peak = max(values.peaks(wanted, timed))
    if peak != row["peak_memory"]:
        yield f"{name}: peak {row['peak_memory']}, it is {peak}"


def expected_problem(question: plans.Question, runtime: str, row: Any) -> dict[str, Any]:
    """Return the problem of a row's cut and flags, restricted to what its runtime runs."""
    ends = [sum(row["layers_per_stage"][: k + 1]) for k in range(len(row["layers_per_stage"]))]
    parts = tuple(zip([0, *ends[:-1]], ends, strict=True))
    placement = row["placement"].split()[0]
    homes = plans.homes_of(placement, question.devices)
    if placement == "loop":
        homes = tuple(range(question.devices)) * (len(parts) // question.devices)
    flags = tuple(stage in row["recompute"] for stage in range(len(parts)))
    again = row["recompute_first"] or 0
    recomputing = {k for begin, end in parts for k in range(begin, min(end, begin + again))}
    entries = [
        entry | entry.get("recompute", {}) if k in recomputing else entry
        for k, entry in enumerate(question.layers)
    ]
    any_order = (row["why_not"] or "").startswith("Megatron-LM runs orders of its own")
    document = plans.problem_of(replace(question, layers=entries), plans.Way(homes, parts, flags))
    for stage, entry in enumerate(document["stages"]):
        whole = stage == 0 or flags[stage] if runtime != "megatron" else not any_order
        if whole:
            entry["backward"] = "fused"
    return document
