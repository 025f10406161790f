"""``compare``: every row held against its schedule's figures, the solver's against the truth."""

from __future__ import annotations

import re
from typing import Any

from campaign.case import Case, close
from campaign.commands.common import a_limit, a_problem, an_objective, schedule_in, truth_of
from campaign.judge import values
from campaign.judge.claims import Judged, false_claims
from campaign.judge.reading import load
from campaign.judge.timing import retimed


def case(case: Case) -> None:
    document, objective = a_problem(case), an_objective(case)
    words = ["--objective", objective, "--workers", 1, "--time-limit", a_limit(case)]
    as_json = case.rng.random() < 0.8
    if as_json:
        words.append("--json")
    ran = case.run("compare", "problem.json", *words, "-o", "out", codes=(0, 3))
    path = case.folder / "out" / "result.json"
    if ran.code not in (0, 3) or not path.exists():
        return
    result, judged = load(path), truth_of(case, document, objective)
    schedule = schedule_in(case.folder / "out" / "schedule.json")
    rows = ran.json() if as_json else []
    for row in rows:
        if row["valid"] and row["name"] != "solver":
            baseline_row(case, judged, row)
    case.violations += false_claims(judged, result, schedule, ran.code)
    if as_json:
        whole_table(case, judged, rows, result)
    else:
        sentences(case, judged, ran.out, result)


def baseline_row(case: Case, judged: Judged, row: dict[str, Any]) -> None:
    """The schedule that ``baseline`` writes, timed both ways by us, has the row's figures."""
    name = row["name"]
    better = judged.best is None or row[judged.objective] < judged.best
    if not better and case.rng.random() < 0.8:
        return
    case.run("export", "problem.json", name, "--to", "schedule", "-o", f"{name}.json")
    schedule = schedule_in(case.folder / f"{name}.json")
    timed, broken = judged.judge(schedule)
    if not case.expect(timed is not None, f"row {name} is not valid: {broken[:3]}"):
        return
    for objective in ("makespan", "span"):
        best = retimed(judged.pipe, schedule, objective)
        if best is None:
            continue
        best_timed, broken = judged.judge(best)
        if best_timed is None:
            continue  # only where ops of length 0 hold more at other times
        figures = {
            "value": (row[objective], values.value(best_timed, objective)),
            "bubble": (
                row["bubble"][objective],
                values.bubbles(judged.pipe, best_timed)[objective],
            ),
        }
        case.expect(figures["value"][0] == figures["value"][1], f"row {name}: {figures}")
        case.expect(close(*figures["bubble"]), f"row {name}: {figures}")
    true = values.peaks(judged.pipe, timed)
    case.expect(row["peak_memory"] == true, f"row {name}: peaks {row['peak_memory']}, true {true}")


def whole_table(case: Case, judged: Judged, rows: Any, result: dict[str, Any]) -> None:
    """No row is better than the solver's; ratios are what they say."""
    objective = judged.objective
    valid = [row for row in rows if row["valid"]]
    for row in valid:
        value = row[objective]
        case.expect(value >= judged.truth.lower, f"row {row['name']}: {value} is impossible")
    best = min((row[objective] for row in valid), default=None)
    solver = [row for row in rows if row["name"] == "solver"]
    case.expect(len(solver) == 1, f"{len(solver)} rows named solver")
    if solver and best is not None:
        found = solver[0][objective] if solver[0]["valid"] else None
        case.expect(found == best, f"the best row has {best}, the solver's {found}")
    for row in valid:
        to_best = row[objective] / best if best else None
        bound = result["lower_bound"]
        to_bound = row[objective] / bound if bound else None
        case.expect(close(row["ratio_to_best"], to_best) or not best, f"ratio to best: {row}")
        case.expect(close(row["ratio_to_bound"], to_bound) or not bound, f"ratio to bound: {row}")
    for row in rows:
        none = row["valid"] or row["ratio_to_bound"] is None
        case.expect(none, f"ratio to a bound that does not hold: {row}")


def sentences(case: Case, judged: Judged, text: str, result: dict[str, Any]) -> None:
    """Hold what the text says about proofs against the result."""
    flat = " ".join(text.split())
    proven = "Proof proven optimal" in flat
    case.expect(proven == (result["status"] == "optimal"), "text and status differ on proof")
    case.expect(not re.search(r"at most -\d", flat), "prints a negative gap")
    if proven and judged.best is not None:
        value = result["lower_bound"]
        case.expect(value <= judged.best, f"prints a proof of {value}")
