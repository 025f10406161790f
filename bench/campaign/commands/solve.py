"""``solve`` with random options: the result object, the folder, and what is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from campaign.case import Case
from campaign.commands.common import a_limit, a_problem, an_objective, schedule_in, truth_of
from campaign.judge.claims import false_claims
from campaign.judge.reading import load

CODES = (0, 3)


def options(case: Case) -> tuple[list[str], int, bool]:
    """Return random options, the number of workers, and whether they restrict the answer."""
    rng = case.rng
    workers = rng.choice([1, 1, 1, 2, 3])
    deterministic = rng.random() < 0.15
    if deterministic:
        workers = 1
    words = ["--seed", str(rng.randint(0, 5)), "--workers", str(workers)]
    if deterministic:
        words.append("--deterministic")
    restricted = rng.random() < 0.15
    if restricted:
        words += ["--for", "torch"]  # refuses what torch cannot run at all
    return words, workers, restricted


def case(case: Case) -> None:
    judged_solve(case, *options(case), a_limit(case))


def judged_solve(
    case: Case,
    words: list[str],
    workers: int,
    restricted: bool,
    seconds: float,
    before: Callable[[], None] | None = None,
) -> None:
    """Run it and hold all it says against the truth; ``before`` is done in its process."""
    document, objective = a_problem(case), an_objective(case)
    limit = ["--time-limit", str(seconds)]
    shared = ["problem.json", "--objective", objective, *limit, *words]
    as_json = case.rng.random() < 0.8
    ran = case.run(
        "solve",
        *shared,
        "-o",
        "out",
        *(["--json"] if as_json else []),
        codes=(*CODES, 2) if restricted else CODES,
        cores=workers,
        before=before,
    )
    path = case.folder / "out" / "result.json"
    if ran.code not in CODES or not case.expect(path.exists(), "no result.json"):
        return
    result = load(path)
    judged = truth_of(case, document, objective)
    schedule = schedule_in(case.folder / "out" / "schedule.json")
    case.expect((schedule is None) == (result["value"] is None), "schedule.json without a value")
    case.violations += false_claims(judged, result, schedule, ran.code, restricted=restricted)
    if judged.feasible and float(limit[1]) >= 1 and not restricted:
        case.expect(schedule is not None, f"finds no schedule, one of {judged.best} exists")
    if judged.feasible is False and float(limit[1]) >= 1 and not restricted:
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
    if result["value"] is not None and not load(case.folder / "problem.json").get("time_unit"):
        shown = re.sub(r"\D.*", "", fields.get("Take", "").replace(",", ""))
        case.expect(shown == str(result["value"]), f"prints {result['objective']} {shown}")
    shares = re.findall(r"(-?)\d[\d.]* % (shorter|better|less|faster)", text)
    case.expect(all(sign == "" for sign, _ in shares), f"prints a negative gain: {shares}")
    case.expect("at most -" not in text, "prints a negative gap")
