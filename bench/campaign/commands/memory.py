"""``frontier`` and ``min-memory``: schedule and bound of every cap, what is too little."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from campaign.case import Case, close
from campaign.commands.common import FAST, a_problem, an_objective, family_of, schedule_in
from campaign.commands.levers import compared, levers_of, mode_names, statements
from campaign.judge.bounds import lower_bound
from campaign.judge.claims import Judged
from campaign.judge.exact import Truth, exact
from campaign.judge.reading import load, pipe_of
from campaign.judge.values import peaks, value

SHORT = 1.0
"""Seconds for a truth where there are many: a curve for each lever."""


def at_cap(document: dict[str, Any], cap: int | None) -> dict[str, Any]:
    """Every device with this capacity."""
    devices = [entry | {"memory": cap} for entry in document["devices"]]
    return document | {"devices": devices}


def truth_at(
    case: Case, document: dict[str, Any], cap: int | None, objective: str, seconds: float = 3.0
) -> Truth:
    pipe = pipe_of(at_cap(document, cap))
    if family_of(case) not in FAST:
        return Truth(lower_bound(pipe, objective))
    case.notes.add("exact")
    return exact(pipe, objective, 0.5 if case.quick else seconds)


def frontier(case: Case) -> None:
    document, objective = a_problem(case), an_objective(case)
    levers = bool(mode_names(document)) and case.rng.random() < 0.7
    if not levers and case.rng.random() < 0.15:
        _a_cap_alone(case, document, objective)
        return
    words = ["--caps", f"points={case.rng.randint(2, 5)}", "--workers", 1]
    words += ["--time-limit", 1 if case.quick else case.rng.choice([1, 4])]
    words += ["--objective", objective]
    words += ["--by-mode"] if levers else []
    as_json = not levers or case.rng.random() < 0.5
    words += ["--json"] if as_json else []
    ran = case.run("frontier", "problem.json", "-o", "out", *words, codes=(0, 2, 3))
    path = case.folder / "out" / "frontier.json"
    found = ran.json() if as_json else load(path) if path.exists() else None
    if ran.code or not case.expect(found is not None, "frontier prints no JSON"):
        return
    if not levers:
        (curve,) = found["curves"]
        a_curve(case, document, curve, objective, 3.0)
        return
    every = levers_of(document)
    names = [curve["lever"] for curve in found["curves"]]
    if not case.expect(names == [one.name for one in every], f"levers {names}"):
        return
    for lever, curve in zip(every, found["curves"], strict=True):
        lever.curve = curve
        lever.known = a_curve(case, lever.document, curve, objective, SHORT)
    rows = found.get("compared", [])
    compared(
        case,
        every,
        rows,
        lambda lever, cap: truth_at(case, lever.document, cap, objective, SHORT),
    )
    if not as_json:
        caps = {device.get("memory") for device in document["devices"]}
        statements(case, every, rows, ran.out, caps.pop() if len(caps) == 1 else None)


def _a_cap_alone(case: Case, document: dict[str, Any], objective: str) -> None:
    """One cap, however small: it is refused only where nothing exists with less than is asked."""
    held = [amount for s in document["stages"] for key, amount in s.items() if "held" in key]
    static = max(device.get("static", 0) for device in document["devices"])
    cap = static + case.rng.randint(0, 2 * max(held, default=0))
    words = ["--caps", cap, "-o", "out", "--workers", 1, "--time-limit", 1, "--json"]
    words += ["--objective", objective]
    ran = case.run("frontier", "problem.json", *words, codes=(0, 2))
    if ran.code == 0:
        a_curve(case, document, ran.json()["curves"][0], objective, 3.0)
    elif least := re.search(r"expected at least (\d+), below which no schedule exists", ran.err):
        truth = truth_at(case, document, int(least[1]) - 1, objective)
        case.expect(not truth.feasible, f"{ran.err.strip()}, one of {truth.upper} does")


def a_curve(
    case: Case, document: dict[str, Any], curve: dict[str, Any], objective: str, seconds: float
) -> list[tuple[float, int]]:
    """Judge a curve's points; return the peak and value of each of their schedules."""
    known: list[tuple[float, int]] = []
    for point in curve["points"]:
        truth = truth_at(case, document, point["cap"], objective, seconds)
        a_point(case, Judged(at_cap(document, point["cap"]), objective, truth), point)
        if point["value"] is not None:
            known.append((max(point["peak_memory"]), point["value"]))
    for peak, best in known:
        for point in curve["points"]:
            bound, size = point["lower_bound"], _size(point["cap"])
            if bound is not None and size >= peak:
                case.expect(bound <= best, f"bound {bound} at cap {size}, but {best} at {peak}")
    for row in curve["published"]:
        at, bound = row["value_at_its_peak"], row["lower_bound_at_its_peak"]
        case.expect(at is None or at <= row["value"], f"published {row} is below the curve")
        case.expect(bound is None or at is None or bound <= at, f"published {row}: bound")
    return known


def _size(cap: int | None) -> float:
    return float("inf") if cap is None else cap


def a_point(case: Case, judged: Judged, point: Any) -> None:
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
    truth = judged.truth
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
        "frontier",
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
    if ran.code or not case.expect(found is not None, "frontier --within prints no JSON"):
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
    sums = found["sum_of_peaks"]
    case.expect(sums == sum(held), f"sum {sums}, true {sum(held)}")
