"""``plan`` on small layers files: value, bound, flags and the problem it made, against all cuts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import isclose, prod
from typing import Any

from campaign.case import Case
from campaign.commands.common import an_objective, family_of, schedule_in
from campaign.judge import plans
from campaign.judge.claims import Judged, false_claims
from campaign.judge.exact import Truth
from campaign.judge.reading import load, pipe_of
from campaign.problems.layered import layers

SHAPES = {
    "chain": ("chain",),
    "vee": ("vee",),
    "loop": ("loop",),
    "any": ("chain", "vee", "loop"),
}


def case(case: Case) -> None:
    rng, objective = case.rng, an_objective(case)
    placement = family_of(case)
    devices = 2 if placement != "chain" else rng.choice([2, 2, 3])
    document = layers(rng, rng.randint(max(4, devices), 5))
    case.write("layers.json", document)
    question = _question(case, document, devices, placement)
    words = ["--devices", devices, "--microbatches", question.microbatches]
    words += ["--placement", placement, "--recompute", question.recompute]
    words += ["--objective", objective, "--link-delay", question.latency, "--workers", 1]
    words += ["--time-limit", 0.2 if case.quick else rng.choice([0.5, 3, 8])]
    if question.memory[0] is not None:
        words += ["--memory", ",".join(map(str, question.memory))]
    if question.bandwidth is not None:
        words += ["--link-delay", f"bandwidth={question.bandwidth}"]
    if rng.random() < 0.5:
        words += ["--layout", "compare=no"]
    can = question.recompute == "never" or any("recompute" in one for one in question.layers)
    ran = case.run("plan", "layers.json", *words, "-o", "out", "--json", codes=(0, 2, 3))
    if not can or ran.code == 2:
        case.expect(not can or not list(plans.ways(question)), f"refused: {ran.err.strip()}")
        return
    truth = plans.best_plan(question, objective, 4.0 if case.quick else 15.0)
    if truth.exact:
        case.notes.add("exact")
    if ran.code == 3:
        case.expect(not truth.feasible, f"infeasible, though {truth.upper} is possible")
        return
    case.violations += false_plan(case, question, objective, truth, ran.json())


def _question(case: Case, document: dict[str, Any], devices: int, placement: str) -> plans.Question:
    rng = case.rng
    held = sum(entry["held_after_F"] for entry in document["layers"])
    weights = sum(entry["weights"] for entry in document["layers"])
    capacity = document.get("reserve", 0) + weights // devices + rng.randint(1, max(2, 2 * held))
    memory: list[int | None] = [None] * devices
    if rng.random() < 0.7:
        memory = [capacity + rng.choice([0, 0, 3]) for _ in range(devices)]
    return plans.Question(
        layers=document["layers"],
        devices=devices,
        microbatches=rng.randint(1, 3 if placement == "chain" else 2),
        memory=memory,
        shapes=SHAPES[placement],
        recompute=rng.choice(["never", "where-needed", "choose", "choose"]),
        latency=rng.choice([0, 0, 1, 2]),
        bandwidth=rng.choice([None, None, Fraction(2), Fraction(1, 3)]),
        reserve=document.get("reserve", 0),
    )


def false_plan(
    case: Case, question: plans.Question, objective: str, truth: Truth, plan: Any
) -> Iterator[str]:
    """Yield every false statement of plan.json."""
    value, bound, status = plan["value"], plan["lower_bound"], plan["status"]
    whole = question.recompute != "where-needed" or question.shapes == ("chain",)
    if plan != load(case.folder / "out" / "plan.json"):
        yield "--json prints another document than plan.json"
    if whole and bound is not None and truth.upper is not None and bound > truth.upper:
        yield f"bound over all partitions {bound}, though {truth.upper} is possible"
    if (status == "optimal") != (value is not None and bound == value):
        yield f"status {status} with value {value} and bound {bound}"
    if value is None:
        return
    if bound is not None and bound > value:
        yield f"bound {bound} above the value {value}"
    if whole and value < truth.lower:
        yield f"value {value}, though no cut allows less than {truth.lower}"
    yield from _false_cut(case, question, objective, plan)
    for row in plan["comparison"]:
        best, row_bound = row["best_order"], row["lower_bound"]
        if row_bound is not None and best is not None and row_bound > best:
            yield f"row {row['name']}: bound {row_bound} above its best order {best}"
        cells = [cell["value"] for cell in row["schedules"].values() if cell["fits"]]
        if best is not None and any(cell < best for cell in cells):
            yield f"row {row['name']}: {min(cells)} is better than its best order {best}"
        if best is not None and best < value and not row["why_not_the_plan"]:
            yield f"row {row['name']}: {best} is better than the plan, {value}, without a reason"
        gain = row["gain"]
        if gain is not None and None not in gain.values():
            parts = prod(v for k, v in gain.items() if k not in ("from", "value", "whole"))
            whole = best / gain["value"]
            if not (isclose(parts, whole) and isclose(gain["whole"], whole)):
                yield f"row {row['name']}: {best} of {gain['value']} is not the product of {gain}"


def _false_cut(case: Case, question: plans.Question, objective: str, plan: Any) -> Iterator[str]:
    """Hold stages, flags, problem and schedule of the answer against the layers."""
    begins = [stage["first_layer"] for stage in plan["stages"]]
    ends = [*begins[1:], len(question.layers)]
    flags = tuple(stage["recompute"] for stage in plan["stages"])
    shape = plan["shape"]["placement"]
    homes = plans.homes_of(shape, question.devices)
    way = plans.Way(homes, tuple(zip(begins, ends, strict=True)), flags)
    if question.recompute == "never" and any(flags):
        yield f"recomputes {flags}, though it never may"
    allowed = list(plans.ways(question))
    restated = question.recompute != "where-needed" or shape == "chain"
    if restated and way not in allowed:
        no_matter = question.recompute == "choose"  # a flag on a stage without a variant
        if not (no_matter and any(way.parts == other.parts for other in allowed)):
            yield f"{way} is not allowed"
    problem = load(case.folder / "out" / "problem.json")
    if pipe_of(_in_modes(problem, flags)) != pipe_of(plans.problem_of(question, way)):
        yield "problem.json is not the problem of its stages and flags"
    schedule = schedule_in(case.folder / "out" / "schedule.json")
    judged = Judged(problem, objective, Truth(0))
    yield from false_claims(judged, plan["result"], schedule, 0)
    if plan["result"]["value"] != plan["value"]:
        yield f"value {plan['value']}, its result's {plan['result']['value']}"


def _in_modes(problem: dict[str, Any], flags: tuple[bool, ...]) -> dict[str, Any]:
    """The problem without modes in which flagged stages have the amounts of mode recompute."""
    stages = []
    for entry, again in zip(problem["stages"], flags, strict=True):
        amounts = {key: value for key, value in entry.items() if key != "modes"}
        for mode in entry.get("modes", ()):
            if again and mode["name"] == "recompute":
                amounts |= {key: value for key, value in mode.items() if key != "name"}
        stages.append(amounts)
    return {key: value for key, value in problem.items() if key != "mode_choice"} | {
        "stages": stages
    }
