"""``compare --layers-per-stage``: each placement is a problem of its own."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from campaign.case import Case
from campaign.commands.common import an_objective, schedule_in
from campaign.judge.claims import Judged, false_claims
from campaign.judge.exact import exact
from campaign.judge.reading import Pipe, load, pipe_of
from campaign.problems import draw, tiny

FOLDERS = {
    "chain": "chain",
    "loop v=2": "loop-v2",
    "vee": "vee",
    "bidirectional": "bidirectional",
}
TIMES = ("F", "B", "W")


def case(case: Case) -> None:
    """Every stage is two layers of half its amounts; without that statement it is refused."""
    rng, objective = case.rng, an_objective(case)
    stages = [draw.stage(rng, device, tiny.POSITIVE) for device in (0, 1)]
    draw.holdings(rng, stages)
    for entry in stages:
        entry.pop("BW", None)
        amounts = [key for key in (*TIMES, "held_after_F", "held_after_B") if key in entry]
        entry |= {key: 2 * entry[key] for key in amounts}
    document = draw.problem(rng, stages, 2, rng.randint(1, 3), slack=rng.choice([0.7, 1.5]))
    case.write("problem.json", document)
    words = ["compare", "problem.json", "--objective", objective]
    words += ["--workers", "1", "--time-limit", "0.05" if case.quick else "1"]
    ran = case.run(*words, "--layers-per-stage", 2, "-o", "out", "--json", codes=(0, 3))
    rows = ran.json()
    if ran.code not in (0, 3) or not case.expect(isinstance(rows, list), "prints no rows"):
        return
    for placement, folder in FOLDERS.items():
        one(case, objective, placement, case.folder / "out" / folder, document, rows)


def one(
    case: Case,
    objective: str,
    placement: str,
    folder: Path,
    document: dict[str, Any],
    rows: list[dict[str, Any]],
) -> None:
    """Hold one placement's problem, result and rows."""
    if not (folder / "result.json").exists():
        return
    problem, result = load(folder / "problem.json"), load(folder / "result.json")
    truth = exact(pipe_of(problem), objective, 0.3 if case.quick else 2.0)
    judged = Judged(problem, objective, truth)
    wrong = _wrong_layers(pipe_of(document), judged.pipe, placement)
    case.expect(not wrong, f"{placement}: {wrong}")
    here = [row for row in rows if row["placement"] == placement and row["valid"]]
    for row in here:
        case.expect(row[objective] >= truth.lower, f"{placement}: row {row['name']} is too good")
    code = 3 if result["status"] == "infeasible" else 0
    schedule = schedule_in(folder / "schedule.json")
    claims = false_claims(judged, result, schedule, code)
    case.violations += [f"{placement}: {claim}" for claim in claims]
    best = min((row[objective] for row in here), default=None)
    case.expect(best == result["value"], f"{placement}: best row {best}, {result['value']}")


def _wrong_layers(chain: Pipe, placed: Pipe, placement: str) -> str:
    """Say what is not the same layers; nothing if all are."""
    replicas = 2 if placement == "bidirectional" else 1
    for kind in (*TIMES, "held_F", "held_B"):
        whole = [getattr(stage, kind) for stage in chain.stages]
        parts = [getattr(stage, kind) for stage in placed.stages]
        if placement in ("loop v=2", "vee"):
            wanted = [amount // 2 for amount, _ in product(whole, range(2))]
        else:
            wanted = whole * replicas
        if parts != wanted:
            return f"{kind} {parts} from {whole}"
    if sum(m for _, m in placed.routes) != chain.routes[0][1]:
        return f"routes {placed.routes}"
    if placed.memory != chain.memory or sum(placed.static) != replicas * sum(chain.static):
        return f"memory {placed.memory}, static {placed.static}"
    return ""
