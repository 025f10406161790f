"""``frontier``: schedule and bound of every cap, and with ``--within`` what is too little."""

from __future__ import annotations

import re
from typing import Any

from bench.campaign.case import Case
from bench.campaign.judge import Judged, Truth, close, load, peaks, schedule_in, value_of
from tests.oracle.reading import Document


def at_cap(document: Document, cap: int | None) -> Document:
    """Every device with this capacity."""
    return document | {"devices": [entry | {"memory": cap} for entry in document["devices"]]}


def case(case: Case) -> None:
    document, objective = case.problem(), case.objective()
    if case.rng.random() < 0.15:
        _a_cap_alone(case, document, objective)
        return
    words = ["--caps", f"points={case.rng.randint(2, 5)}", "--workers", 1, "--json", "-o", "out"]
    words += ["--time-limit", 1 if case.quick else case.rng.choice([1, 4])]
    ran = case.run("frontier", "problem.json", "--objective", objective, *words, codes=(0, 2, 3))
    if ran.code == 0 and case.expect(ran.json() is not None, "frontier prints no JSON"):
        (curve,) = ran.json()["curves"]
        a_curve(case, document, curve, objective)


def _a_cap_alone(case: Case, document: Document, objective: str) -> None:
    """One cap, however small: it is refused only where nothing exists with less than is asked."""
    held = [amount for s in document["stages"] for key, amount in s.items() if "held" in key]
    static = max(device.get("static", 0) for device in document["devices"])
    cap = static + case.rng.randint(0, 2 * max(held, default=0))
    words = ["--caps", cap, "-o", "out", "--workers", 1, "--time-limit", 1, "--json"]
    ran = case.run("frontier", "problem.json", *words, "--objective", objective, codes=(0, 2))
    if ran.code == 0:
        a_curve(case, document, ran.json()["curves"][0], objective)
    elif least := re.search(r"expected at least (\d+), below which no schedule exists", ran.err):
        truth = case.truth(at_cap(document, int(least[1]) - 1), objective).truth
        case.expect(not truth.feasible, f"{ran.err.strip()}, one of {truth.upper} does")


def a_curve(case: Case, document: Document, curve: Document, objective: str) -> None:
    """Judge a curve's points, each with the others' schedules, and the published ones."""
    known: list[tuple[float, int]] = []
    for point in curve["points"]:
        judged = case.truth(at_cap(document, point["cap"]), objective, 1.0)
        a_point(case, judged, point)
        if point["value"] is not None:
            known.append((max(point["peak_memory"]), point["value"]))
    for peak, best in known:
        for point in curve["points"]:
            bound, cap = point["lower_bound"], point["cap"]
            if bound is not None and (cap is None or cap >= peak):
                case.expect(bound <= best, f"bound {bound} at cap {cap}, but {best} at {peak}")
    for row in curve["published"]:
        at, bound = row["value_at_its_peak"], row["lower_bound_at_its_peak"]
        case.expect(at is None or at <= row["value"], f"published {row} is below the curve")
        case.expect(bound is None or at is None or bound <= at, f"published {row}: bound")


def a_point(case: Case, judged: Judged, point: Any) -> None:
    """One cap: its schedule, figures, status; its bound against the truth there."""
    cap, best, bound, truth = point["cap"], point["value"], point["lower_bound"], judged.truth
    if best is not None:
        own = Judged(load(case.folder / point["problem"]), judged.objective, truth)
        timed, broken = own.judge(schedule_in(case.folder / point["schedule"]))
        if case.expect(timed is not None, f"cap {cap}: schedule breaks {broken[:3]}"):
            assert timed is not None
            case.expect(value_of(timed, judged.objective) == best, f"cap {cap}: value {best}")
            case.expect(peaks(timed) == point["peak_memory"], f"cap {cap}: peaks")
            case.expect({*own.pipe.memory} == {cap}, f"cap {cap}: its problem has another")
        case.expect(best >= truth.lower, f"cap {cap}: value {best} below {truth.lower}")
    optimal = best is not None and bound == best
    case.expect((point["status"] == "optimal") == optimal, f"cap {cap}: status {point}")
    gap = None if best is None or bound is None else (best - bound) / best if best else 0.0
    case.expect(close(point["gap"], gap), f"cap {cap}: gap {point['gap']}")
    if bound is not None and truth.upper is not None:
        case.expect(bound <= truth.upper, f"cap {cap}: bound {bound}, {truth.upper} is possible")
    if point["status"] == "infeasible":
        case.expect(not truth.feasible, f"cap {cap}: infeasible, oracle has {truth.upper}")


def min_memory(case: Case) -> None:
    """How little is enough for a time: nothing smaller, and nothing called too little, is."""
    document, objective = case.problem(), case.objective()
    words = [
        "--within",
        case.rng.choice(["0%", "5%", "30%"]),
        "--workers",
        1,
        "--json",
        "-o",
        "out",
    ]
    words += ["--time-limit", 1 if case.quick else case.rng.choice([1, 4])]
    ran = case.run("frontier", "problem.json", "--objective", objective, *words, codes=(0, 2, 3))
    found = ran.json()
    if ran.code or not case.expect(found is not None, "frontier --within prints no JSON"):
        return
    best, unlimited = found["best"], case.truth(at_cap(document, None), objective).truth
    if best["lower_bound"] is not None and unlimited.upper is not None:
        case.expect(best["lower_bound"] <= unlimited.upper, f"best: bound {best}")
    if best["value"] is not None:
        case.expect(best["value"] >= unlimited.lower, f"best: {best} below {unlimited.lower}")
    target, enough, too_little = found["target"], found["cap"], found["largest_too_little"]

    def possible(problem: Document) -> int | None:
        upper = case.truth(problem, objective).truth.upper
        return upper if upper is not None and upper <= target else None

    if too_little is not None:
        less = possible(at_cap(document, too_little))
        case.expect(less is None, f"{too_little} called too little, {less} <= {target} exists")
    if enough is None:
        return
    if found["status"] == "optimal" and enough > 0:
        less = possible(at_cap(document, enough - 1))
        case.expect(less is None, f"{enough} called smallest, {enough - 1} allows {less}")
    judged = Judged(load(case.folder / "out" / "problem.json"), objective, Truth(0))
    timed, broken = judged.judge(schedule_in(case.folder / "out" / "schedule.json"))
    if not case.expect(timed is not None, f"its schedule breaks {broken[:3]}"):
        return
    assert timed is not None
    held, reached = peaks(timed), value_of(timed, objective)
    case.expect(held == found["peak_memory"], f"peaks {found['peak_memory']}, true {held}")
    case.expect(max(held) <= enough, f"peak {max(held)} above the cap {enough}")
    case.expect(reached == found["value"] and reached <= target, f"value {reached}, {target}")
    sums = found["sum_of_peaks"]
    case.expect(sums == sum(held), f"sum {sums}, true {sum(held)}")
