"""``frontier`` and ``min-memory``: schedule and bound of every cap, what is too little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from campaign.case import Case, close
from campaign.commands.common import FAST, a_problem, an_objective, family_of, schedule_in
from campaign.judge.bounds import lower_bound
from campaign.judge.claims import Judged
from campaign.judge.exact import Truth, exact
from campaign.judge.reading import load, pipe_of
from campaign.judge.values import peaks, value


def at_cap(document: dict[str, Any], cap: int | None) -> dict[str, Any]:
    """Every device with this capacity."""
    devices = [entry | {"memory": cap} for entry in document["devices"]]
    return document | {"devices": devices}


def truth_at(case: Case, document: dict[str, Any], cap: int | None, objective: str) -> Truth:
    pipe = pipe_of(at_cap(document, cap))
    if family_of(case) not in FAST:
        return Truth(lower_bound(pipe, objective))
    case.notes.add("exact")
    return exact(pipe, objective, 0.5 if case.quick else 3.0)


def frontier(case: Case) -> None:
    document, objective = a_problem(case), an_objective(case)
    limit = 1 if case.quick else case.rng.choice([1, 4])
    ran = case.run(
        "frontier",
        "problem.json",
        "-o",
        "out",
        "--points",
        case.rng.randint(2, 5),
        "--workers",
        1,
        "--time-limit",
        limit,
        "--objective",
        objective,
        "--json",
        codes=(0, 2, 3),
    )
    found = ran.json()
    if ran.code or not case.expect(found is not None, "frontier prints no JSON"):
        return
    (curve,) = found["curves"]
    known: list[tuple[float, int]] = []
    for point in curve["points"]:
        judged = Judged(at_cap(document, point["cap"]), objective, Truth(0))
        a_point(case, judged, point, document)
        known.append((_size(point["cap"]), point["value"] or 10**18))
    for cap, best in known:
        for point in curve["points"]:
            bound, size = point["lower_bound"], _size(point["cap"])
            if bound is not None and size >= cap:
                case.expect(bound <= best, f"bound {bound} at cap {size}, but {best} at {cap}")
    for row in curve["published"]:
        at, bound = row["value_at_its_peak"], row["lower_bound_at_its_peak"]
        case.expect(at is None or at <= row["value"], f"published {row} is below the curve")
        case.expect(bound is None or at is None or bound <= at, f"published {row}: bound")


def _size(cap: int | None) -> float:
    return float("inf") if cap is None else cap


def a_point(case: Case, judged: Judged, point: Any, document: dict[str, Any]) -> None:
    """One cap: its schedule, figures, status; its bound against the truth there."""
    cap, best, bound = point["cap"], point["value"], point["lower_bound"]
    if best is not None:
        problem = load(case.folder / point["problem"])
        own = Judged(problem, judged.objective, judged.truth)
        same = pipe_of(problem) == judged.pipe
        case.expect(same, f"cap {cap}: its problem.json is another problem")
        timed, broken = own.judge(schedule_in(case.folder / point["schedule"]))
        if case.expect(timed is not None, f"cap {cap}: schedule breaks {broken[:3]}"):
            assert timed is not None
            case.expect(value(timed, judged.objective) == best, f"cap {cap}: value {best}")
            case.expect(peaks(own.pipe, timed) == point["peak_memory"], f"cap {cap}: peaks")
    optimal = best is not None and bound == best
    case.expect((point["status"] == "optimal") == optimal, f"cap {cap}: status {point}")
    gap = None if best is None or bound is None else (best - bound) / best if best else 0.0
    case.expect(close(point["gap"], gap), f"cap {cap}: gap {point['gap']}")
    truth = truth_at(case, document, cap, judged.objective)
    if bound is not None and truth.upper is not None:
        case.expect(bound <= truth.upper, f"cap {cap}: bound {bound}, {truth.upper} is possible")
    if best is not None:
        case.expect(best >= truth.lower, f"cap {cap}: value {best} below {truth.lower}")
    if point["status"] == "infeasible":
        case.expect(not truth.feasible, f"cap {cap}: infeasible, oracle has {truth.upper}")


def min_memory(case: Case) -> None:
    document, objective = a_problem(case), an_objective(case)
    within = case.rng.choice(["0%", "5%", "30%"])
    ran = case.run(
        "min-memory",
        "problem.json",
        "-o",
        "out",
        "--within",
        within,
        "--workers",
        1,
        "--time-limit",
        1 if case.quick else case.rng.choice([1, 4]),
        "--objective",
        objective,
        "--json",
        codes=(0, 2, 3),
    )
    found = ran.json()
    if ran.code or not case.expect(found is not None, "min-memory prints no JSON"):
        return
    best = found["best"]
    unlimited = truth_at(case, document, None, objective)
    if best["lower_bound"] is not None and unlimited.upper is not None:
        case.expect(best["lower_bound"] <= unlimited.upper, f"best: bound {best}")
    if best["value"] is not None:
        case.expect(best["value"] >= unlimited.lower, f"best: {best} below {unlimited.lower}")
    _caps(case, document, objective, found)


def _caps(case: Case, document: dict[str, Any], objective: str, found: Any) -> None:
    target, enough, too_little = found["target"], found["cap"], found["largest_too_little"]
    if too_little is not None:
        truth = truth_at(case, document, too_little, objective)
        fits = truth.upper is not None and truth.upper <= target
        case.expect(not fits, f"{too_little} called too little, {truth.upper} <= {target} exists")
    if enough is None:
        return
    if found["status"] == "optimal" and enough > 0:
        truth = truth_at(case, document, enough - 1, objective)
        fits = truth.upper is not None and truth.upper <= target
        case.expect(not fits, f"{enough} called smallest, {enough - 1} allows {truth.upper}")
    problem = load(case.folder / "out" / "problem.json")
    judged = Judged(problem, objective, Truth(0))
    timed, broken = judged.judge(schedule_in(Path(case.folder / "out" / "schedule.json")))
    if not case.expect(timed is not None, f"its schedule breaks {broken[:3]}"):
        return
    assert timed is not None
    held, reached = peaks(judged.pipe, timed), value(timed, objective)
    case.expect(held == found["peak_memory"], f"peaks {found['peak_memory']}, true {held}")
    case.expect(max(held) <= enough, f"peak {max(held)} above the cap {enough}")
    case.expect(reached == found["value"] and reached <= target, f"value {reached}, {target}")
    sums, least = found["sum_of_peaks"], found["sum_lower_bound"]
    case.expect(sums == sum(held), f"sum {sums}, true {sum(held)}")
    case.expect(least is None or least <= sums, f"sum bound {least} above {sums}")
    case.expect((found["sum_status"] == "optimal") == (least == sums), "sum status")
