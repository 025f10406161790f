"""``advise`` on small layers files: every row rebuilt and judged, the bound against all cuts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

from bench.campaign.case import Case
from bench.campaign.judge import Judged, Truth, false_claims, load, peaks, schedule_in
from tests.oracle.plan_claims import random_case
from tests.oracle.plans import Case as Plan
from tests.oracle.plans import Choice, Shape
from tests.oracle.reading import Document, Pipe

RUNTIMES = ("torch", "torchtitan", "automodel", "megatron")


def case(case: Case) -> None:
    rng, runtime = case.rng, case.family
    whole = rng.random() < 0.5  # then what torch runs is all that there is
    plan = drawn(rng, whole=whole)
    units = {"time_unit": "ms", "memory_unit": "MiB"}
    case.write("layers.json", plan.document | units)
    words = ["--devices", 2, "--microbatches", plan.microbatches, "--for", runtime, "--workers", 1]
    words += ["--link-delay", plan.latency, "-o", "out", "--json"]
    words += ["--time-limit", 0.3 if case.quick else rng.choice([0.5, 2, 5])]
    if plan.capacities[0] is not None:
        words += ["--memory", plan.capacities[0], "--memory", "reserve=0"]
    ran = case.run("advise", "layers.json", *words, codes=(0, 2, 3))
    possible = best_of(plan) if runtime == "megatron" or whole else None
    if possible is not None:
        case.notes.add("exact")
    if ran.code == 2:
        cuts = [cut for shape in plan.shapes for cut in plan.cuts(shape)]
        case.expect(not cuts, f"refused: {ran.err.strip()}")
    elif ran.code == 3:
        case.expect(possible is None, f"infeasible, though {possible} is possible")
    else:
        case.violations += false_advice(case, plan, runtime, possible, ran.json())


def drawn(rng: Random, *, whole: bool) -> Plan:
    """Layers and options of two devices, without bandwidths, in every placement."""
    made = random_case(rng.getrandbits(32), "any", "choose")
    for layer in made.document["layers"] if whole else ():
        layer["fused"] = True
    capacity = max((c for c in made.capacities if c is not None), default=None)
    recompute = "never" if capacity is None else "choose"  # where memory is ample, nothing does
    plan = Plan(made.document, 2, min(made.microbatches, 3), "any", recompute)
    plan.capacities, plan.latency = [capacity] * 2, made.latency
    return plan


def best_of(plan: Plan) -> int | None:
    """The least of all cuts, placements and choices of recomputation."""
    values = [plan.best(shape) for shape in plan.shapes if any(True for _ in plan.cuts(shape))]
    return min((value for value in values if value is not None), default=None)


def false_advice(
    case: Case, plan: Plan, runtime: str, possible: int | None, said: Any
) -> Iterator[str]:
    """Yield every false statement of advice.json."""
    out = case.folder / "out"
    bound, chosen, rows = said["lower_bound"], said["chosen"], said["rows"]
    if said != load(out / "advice.json") | {"wall_s": said["wall_s"]}:
        yield "--json prints another document than advice.json"
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
        yield from false_gains(said["advice"].get("Gain") or "", chosen["makespan"], rows)
        problem, schedule = load(out / "problem.json"), schedule_in(out / "schedule.json")
        yield from _false_row(plan, runtime, chosen, problem, schedule)
        judged = Judged(problem, "makespan", Truth(0))
        yield from false_claims(judged, load(out / "result.json"), schedule, 0)
    for row in rows:
        if row["files"] is not None and row["fits"] and row["schedule"] != "offload":
            problem = load(out / f"{row['files']}.problem.json")
            schedule = schedule_in(out / f"{row['files']}.json")
            yield from _false_row(plan, runtime, row, problem, schedule)


def false_gains(text: str, value: int, rows: list[Any]) -> Iterator[str]:
    """Hold each gain that is named against a row of the table, and its share against both times."""
    for share, name, time in re.findall(r"([\d.]+) % shorter than ([^(]+) \(([\d,]+) ms\)", text):
        reference = int(time.replace(",", ""))
        if reference not in [row["makespan"] for row in rows]:
            yield f"{name} is said to take {reference}, no row does"
        true = Fraction(100 * (reference - value), reference)
        if abs(Fraction(share) - true) >= Fraction(10) ** -len(share.partition(".")[2]):
            yield f"{share} % shorter than {name}: {value} against {reference}"


def _false_row(
    plan: Plan, runtime: str, row: Any, problem: Document, schedule: Any
) -> Iterator[str]:
    """Hold a row's problem against the layers, its figures against its schedule."""
    name = f"{row['schedule']} ({row['split']} split)"
    timed, broken = Judged(problem, "makespan", Truth(0)).judge(schedule)
    if timed is None:
        yield f"{name} breaks rules: {broken[:3]}"
        return
    if not row["recompute_first"]:
        wanted, given = Pipe(expected_problem(plan, runtime, row)), Pipe(problem)
        for what in ("home", "memory", "static", "modes"):
            if getattr(wanted, what) != getattr(given, what):
                yield f"{name}: {what} {getattr(given, what)}, not {getattr(wanted, what)}"
    if timed.makespan != row["makespan"]:
        yield f"{name}: makespan {row['makespan']}, it is {timed.makespan}"
    if max(peaks(timed)) != row["peak_memory"]:
        yield f"{name}: peak {row['peak_memory']}, it is {max(peaks(timed))}"


def expected_problem(plan: Plan, runtime: str, row: Any) -> Document:
    """Return the problem of a row's cut and flags, restricted to what its runtime runs."""
    counts, placement = tuple(row["layers_per_stage"]), row["placement"].split()[0]
    there = (*range(plan.devices),)
    homes = there + there[::-1] if placement == "vee" else there * (len(counts) // plan.devices)
    flags = tuple(stage in row["recompute"] for stage in range(len(counts)))
    any_order = (row["why_not"] or "").startswith("Megatron-LM runs orders of its own")
    document = plan.problem(Choice(Shape(placement, homes), counts, flags))
    for stage, entry in enumerate(document["stages"]):
        whole = stage == 0 or flags[stage] if runtime != "megatron" else not any_order
        if whole:
            entry["backward"] = "fused"
    return document
