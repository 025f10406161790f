"""``solve`` with random options: the result object, the folder, and what is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bench.campaign.case import Case
from bench.campaign.judge import false_claims, load, schedule_in

CODES = (0, 3)


def case(case: Case) -> None:
    """Run it and hold all it says against the truth."""
    deterministic = case.rng.random() < 0.15
    workers = 1 if deterministic else case.rng.choice([1, 1, 1, 2, 3])
    judged_solve(case, workers, case.limit(), deterministic=deterministic)


def judged_solve(
    case: Case,
    workers: int,
    seconds: float,
    *,
    deterministic: bool = False,
    before: Callable[[], None] | None = None,
) -> None:
    """Solve with so many workers, and hold all it says against the truth."""
    rng, document, objective = case.rng, case.problem(), case.objective()
    restricted = rng.random() < 0.15
    words = ["--objective", objective, "--time-limit", seconds, "--seed", rng.randint(0, 5)]
    words += ["--workers", workers, *["--deterministic"] * deterministic]
    words += ["--for", "torch"] * restricted  # refuses what torch cannot run at all
    as_json = rng.random() < 0.8
    words += ["--json"] * as_json
    codes = (*CODES, 2) if restricted else CODES
    ran = case.run(
        "solve", "problem.json", *words, "-o", "out", codes=codes, cores=workers, before=before
    )
    path = case.folder / "out" / "result.json"
    if ran.code not in CODES or not case.expect(path.exists(), "no result.json"):
        return
    result, judged = load(path), case.truth(document, objective)
    schedule = schedule_in(case.folder / "out" / "schedule.json")
    case.expect((schedule is None) == (result["value"] is None), "schedule.json without a value")
    case.violations += false_claims(judged, result, schedule, ran.code, restricted=restricted)
    if seconds >= 1 and not restricted:
        if judged.feasible:
            case.expect(schedule is not None, f"finds no schedule, one of {judged.best} exists")
        if judged.feasible is False:
            case.expect(ran.code == 3, f"{result['status']}, and nothing fits")
    if as_json:
        case.expect(ran.json() == result, "--json prints another document than result.json")
    else:
        printed(case, ran.out, result)


def printed(case: Case, text: str, result: dict[str, Any]) -> None:
    """Hold the table's sentences against the result object."""
    fields = dict(re.findall(r"^(\S[\w ]*?)  +(.*?)\s*$", text, re.MULTILINE))
    proven = {"optimal": "proven optimal", "infeasible": "proven infeasible"}
    proof, status = fields.get("Proof", ""), result["status"]
    for one, words in proven.items():
        case.expect(proof.startswith(words) == (status == one), f"{status}, prints {proof}")
    if result["value"] is not None:
        shown = re.sub(r"\D.*", "", fields.get("Take", "").replace(",", ""))
        case.expect(shown == str(result["value"]), f"prints {result['objective']} {shown}")
    shares = re.findall(r"(-?)\d[\d.]* % (shorter|better|less|faster)", text)
    case.expect(all(sign == "" for sign, _ in shares), f"prints a negative gain: {shares}")
    case.expect("at most -" not in text, "prints a negative gap")
