"""``compare``: every row held against its schedule's figures, the solver's against the truth."""

from __future__ import annotations

import re
from typing import Any

from bench.campaign.case import Case
from bench.campaign.judge import (
    Judged,
    bubbles,
    close,
    false_claims,
    load,
    peaks,
    retimed,
    schedule_in,
    value_of,
)


def case(case: Case) -> None:
    document, objective = case.problem(), case.objective()
    words = ["--objective", objective, "--workers", 1, "--time-limit", case.limit(), "-o", "out"]
    as_json = case.rng.random() < 0.8
    words += ["--json"] * as_json
    ran = case.run("compare", "problem.json", *words, codes=(0, 3))
    path = case.folder / "out" / "result.json"
    if ran.code not in (0, 3) or not path.exists():
        return
    result, judged = load(path), case.truth(document, objective)
    schedule = schedule_in(case.folder / "out" / "schedule.json")
    rows = ran.json() if as_json else []
    for row in rows:
        if row["valid"] and row["name"] != "solver":
            baseline_row(case, judged, row)
    case.violations += false_claims(judged, result, schedule, ran.code)
    if as_json:
        whole_table(case, judged, rows, result)
        return
    flat = " ".join(ran.out.split())
    proven = "Proof proven optimal" in flat
    case.expect(proven == (result["status"] == "optimal"), "text and status differ on proof")
    case.expect(not re.search(r"at most -\d", flat), "prints a negative gap")


def baseline_row(case: Case, judged: Judged, row: dict[str, Any]) -> None:
    """The schedule that ``export`` writes, timed both ways by us, has the row's figures."""
    name = row["name"]
    better = judged.best is None or row[judged.objective] < judged.best
    if not better and case.rng.random() < 0.8:
        return
    case.run("export", "problem.json", name, "--to", "schedule", "-o", f"{name}.json")
    schedule = schedule_in(case.folder / f"{name}.json")
    timed, broken = judged.judge(schedule)
    if not case.expect(timed is not None, f"row {name} is not valid: {broken[:3]}"):
        return
    assert timed is not None
    for objective in ("makespan", "span"):
        best = retimed(judged, schedule, objective)
        best_timed = None if best is None else judged.judge(best)[0]
        if best_timed is None:
            continue  # copies, or ops of length 0 that hold more at other times
        value, share = value_of(best_timed, objective), bubbles(best_timed)[objective]
        case.expect(row[objective] == value, f"row {name}: {objective} {row[objective]}, {value}")
        case.expect(close(row["bubble"][objective], share), f"row {name}: bubble, {share}")
    case.expect(row["peak_memory"] == peaks(timed), f"row {name}: peaks, true {peaks(timed)}")


def whole_table(case: Case, judged: Judged, rows: Any, result: dict[str, Any]) -> None:
    """No row is better than the solver's; ratios are what they say."""
    objective, bound = judged.objective, result["lower_bound"]
    valid = [row for row in rows if row["valid"]]
    best = min((row[objective] for row in valid), default=None)
    solver = [row for row in rows if row["name"] == "solver"]
    case.expect(len(solver) == 1, f"{len(solver)} rows named solver")
    if solver and best is not None:
        found = solver[0][objective] if solver[0]["valid"] else None
        case.expect(found == best, f"the best row has {best}, the solver's {found}")
    for row in valid:
        value = row[objective]
        case.expect(value >= judged.truth.lower, f"row {row['name']}: {value} is impossible")
        for name, whole in (("ratio_to_best", best), ("ratio_to_bound", bound)):
            case.expect(not whole or close(row[name], value / whole), f"{name} of {row}")
    for row in rows:
        none = row["valid"] or row["ratio_to_bound"] is None
        case.expect(none, f"ratio to a bound that does not hold: {row}")
