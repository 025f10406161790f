"""``export`` with ``import``, ``report`` and ``sweep``: what goes out comes back the same."""

from __future__ import annotations

import re
from typing import Any

from campaign.case import Case
from campaign.commands.common import a_problem, an_objective, schedule_in, truth_of
from campaign.judge import values
from campaign.judge.claims import Judged, false_claims
from campaign.judge.reading import load


def round_trip(case: Case) -> None:
    """A runtime's file, read back, is what export says of it, and of torch's the same order."""
    judged = truth_of(case, a_problem(case), "makespan", 0.01)
    runtime = case.rng.choice(["torch", "torch", "primus", "d9d", "jaxpp"])
    asked = case.rng.random() < 0.5
    torch = asked and runtime == "torch"
    words = ["--for", runtime] if asked else []
    ran = case.run(
        "solve",
        "problem.json",
        "-o",
        "out",
        "--time-limit",
        0.3,
        "--workers",
        1,
        *words,
        codes=(0, 2, 3) if asked else (0, 3),
    )
    path = case.folder / "out" / "schedule.json"
    if ran.code or not path.exists():
        return
    original = load(path)
    file = "order.csv" if runtime == "torch" else "order.py"
    to = case.run("export", "problem.json", path, "--to", runtime, "-o", file, codes=(0, 1, 2))
    told = 'say "backward": "fused" where microbatches differ' in to.err
    exported = to.code == 0 or (told and ws_out_of_order(original))
    case.expect(not asked or exported, f"what is solved for {runtime} is not exported to it")
    if to.code:
        return
    back = case.run("export", "problem.json", file, "--to", "schedule", "-o", "back.json")
    if back.code:
        return
    timed, broken = judged.judge(schedule_in(case.folder / "back.json"))
    if not case.expect(timed is not None, f"what comes back breaks {broken[:3]}"):
        return
    assert timed is not None
    told = r"torch's order: makespan (\d+) \(was|runs it (\d+), of this schedule (\d+)"
    said = re.search(told, to.out + to.err)
    if said is not None:
        shown, reached = int(said[1] or said[2]), values.makespan(timed)
        case.expect(shown == reached, f"export prints {shown}, what comes back has {reached}")
        if asked and said[3] is not None:
            case.expect(shown <= int(said[3]), f"solved for {runtime}, it takes longer there")
    if torch:
        orders = [rows_fused(original), rows_fused(load(case.folder / "back.json"))]
        case.expect(orders[0] == orders[1], "another order comes back")
    case.run("export", "problem.json", path, "--to", "trace", "-o", "x.trace")
    case.run("show", "problem.json", path, "--png", "x.png")


def ws_out_of_order(schedule: Any) -> bool:
    """Whether some stage runs its Ws in another order than by number."""
    ops = [slot[0].partition("W") for slots in schedule["devices"] for slot in slots]
    numbers: dict[str, list[int]] = {}
    for stage, weight, number in ops:
        if weight and stage.isdigit():
            numbers.setdefault(stage, []).append(int(number))
    return any(own != sorted(own) for own in numbers.values())


def rows_fused(schedule: Any) -> list[list[str]]:
    """Return every device's ops, each B with its own W directly behind it as one BW."""
    rows = []
    for slots in schedule["devices"]:
        text = " ".join(slot[0] for slot in slots)
        rows.append(re.sub(r"\b(\d+)B(\d+) \1W\2\b", r"\1BW\2", text).split())
    return rows


def report(case: Case) -> None:
    """The page tells the result's value, or a better one made afterwards, and no gain below 0."""
    a_problem(case)
    ran = case.run(
        "solve", "problem.json", "-o", "out", "--time-limit", 0.3, "--workers", 1, codes=(0, 3)
    )
    if ran.code:
        return
    reported = case.run("show", "out", "--html", "out/report.html", codes=(0, 2))
    page = case.folder / "out" / "report.html"
    if not page.exists():
        return
    text = re.sub(
        r"<(script|style).*?</\1>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    value = load(case.folder / "out" / "result.json")["value"]
    if better := re.search(r"made afterwards, has (\d+)", reported.err):
        case.expect(value is None or int(better[1]) < value, "a worse schedule is called better")
        value = int(better[1])
    unit = load(case.folder / "problem.json").get("time_unit")
    shown = value is None or shows(re.sub("[,\u202f\u2009]", "", text), value, unit)
    case.expect(shown, f"the page does not show the value {value}")
    negative = re.findall(r"[-\u2212]\d[\d.]* ?% (?:shorter|better|less|faster)", text)
    case.expect(not negative, f"the page prints {negative}")


def shows(text: str, value: int, unit: str | None) -> bool:
    """Whether a text has the value: in ms, rounded to what is shown, where its unit is known."""
    in_ms = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3}
    if unit not in in_ms:
        return re.search(rf"(?<![\d.]){value}(?![\d.])", text) is not None
    places = ((m[1], len(m[2] or "")) for m in re.finditer(r"(\d+(?:\.(\d+))?) ms", text))
    return any(abs(float(x) - value * in_ms[unit]) <= 0.501 * 10**-n for x, n in places)


def sweep(case: Case) -> None:
    """Every row's result is true of the problem and the schedule beside it."""
    objective = an_objective(case)
    a_problem(case)
    case.write(
        "s.toml",
        'format = "pipesat.sweep/1"\n[run]\nworkers = 1\n[grid]\nproblem = "problem.json"\n'
        f'objective = "{objective}"\nmicrobatches = [1, 2]\ntime_limit = 0.5\n',
    )
    ran = case.run("sweep", "s.toml", "-o", "rows", "--schedules", "--processes", 1, codes=(0, 2))
    if ran.code:
        return
    for line in (case.folder / "rows" / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = case_row(line)
        if row["result"] is None or row["result"]["schedule"] is None:
            continue
        path = case.folder / "rows" / row["result"]["schedule"]
        path = path if path.exists() else case.folder / row["result"]["schedule"]
        problem = load(path.parent / "problem.json")
        judged = Judged(problem, objective, truth_of(case, problem, objective, 2.0).truth)
        code = 3 if row["status"] == "infeasible" else 0
        case.violations += false_claims(judged, row["result"], load(path), code)


def case_row(line: str) -> Any:
    import json

    return json.loads(line)
