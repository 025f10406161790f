"""``export`` with its way back: what goes out comes back the same."""

from __future__ import annotations

import re
from typing import Any

from bench.campaign.case import Case
from bench.campaign.judge import load, schedule_in


def round_trip(case: Case) -> None:
    """A runtime's file, read back, is what export says of it, and of torch's the same order."""
    judged = case.truth(case.problem(), "makespan", 0.01)
    runtime = case.rng.choice(["torch", "torch", "primus", "d9d", "jaxpp", "elf", "olmo-core"])
    asked = case.rng.random() < 0.5
    words = ["-o", "out", "--time-limit", 0.3, "--workers", 1, *["--for", runtime] * asked]
    ran = case.run("solve", "problem.json", *words, codes=(0, 2, 3) if asked else (0, 3))
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
    returned = schedule_in(case.folder / "back.json")
    timed, broken = judged.judge(returned)
    if not case.expect(timed is not None, f"what comes back breaks {broken[:3]}"):
        return
    assert timed is not None
    words_of = r"torch's order: makespan (\d+) \(was|runs it (\d+), of this schedule (\d+)"
    if said := re.search(words_of, to.out + to.err):
        shown = int(said[1] or said[2])
        case.expect(shown == timed.makespan, f"export prints {shown}, true {timed.makespan}")
        if asked and said[3] is not None:
            case.expect(shown <= int(said[3]), f"solved for {runtime}, it takes longer there")
    if asked and runtime == "torch":
        case.expect(rows_fused(original) == rows_fused(returned), "another order comes back")
    case.run("export", "problem.json", path, "--to", "trace", "-o", "x.trace")
    case.run("show", "problem.json", path, "--png", "x.png")


def ws_out_of_order(schedule: Any) -> bool:
    """Whether some stage runs its Ws in another order than by number."""
    numbers: dict[str, list[int]] = {}
    for slot in (slot for slots in schedule["devices"] for slot in slots):
        stage, weight, number = slot[0].partition("W")
        if weight and stage.isdigit():
            numbers.setdefault(stage, []).append(int(number))
    return any(own != sorted(own) for own in numbers.values())


def rows_fused(schedule: Any) -> list[list[str]]:
    """Return every device's ops, each B with its own W directly behind it as one BW."""
    rows = (" ".join(slot[0] for slot in slots) for slots in schedule["devices"])
    return [re.sub(r"\b(\d+)B(\d+) \1W\2\b", r"\1BW\2", text).split() for text in rows]
