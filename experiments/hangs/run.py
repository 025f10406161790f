"""Known hangs, rebuilt as files, and every hand-written schedule, under every rule.

    python -m experiments.hangs.run

Fills both tables of README.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pipesat
from bench.pages import put, table
from pipesat.compare.schedules import schedule_of
from pipesat.runtimes.hangs.step_lists import RULES
from pipesat.runtimes.hangs.verdict import posted_in, verdict

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
COSTS = {"F": 2, "B": 2, "W": 2, "held_after_F": 1}
PLACES = {
    "chain": [*range(4)],
    "loop": [s % 4 for s in range(8)],
    "two ranks": [0, 1, 0, 1],
    "vee": [min(s, 7 - s) for s in range(8)],
    "two routes": [*range(4), *range(3, -1, -1)],
}


def kind(said: Any) -> str:
    return "hangs" if said.cycle else "crossed" if said.crossed else "safe"


def known() -> Iterator[list[str]]:
    """What each rule says of a file as it stands."""
    for case in json.loads((HERE / "known.json").read_text()):
        problem, name = pipesat.Problem.read(HERE / "known" / case["problem"]), case["file"]
        path = HERE / "known" / name if name.endswith(".csv") else Path(name)
        schedule = schedule_of(problem, str(path))
        posted = posted_in(path, problem, schedule.order)
        cells = [kind(verdict(problem, schedule, rule, posted)) for rule in RULES]
        yield [case["source"], f"`{name}`", case["what"], *cells]


def problems() -> Iterator[pipesat.Problem]:
    """The examples, and five uniform pipelines."""
    for path in sorted(EXAMPLES.glob("*.json")):
        if "pipesat.problem/1" in path.read_text():
            yield pipesat.Problem.read(path)
    for name, home in PLACES.items():
        doc = {"format": "pipesat.problem/1", "name": name, "overlap": {"FB": [3, 4]}}
        doc |= {"devices": [{} for _ in {*home}], "stages": [{"device": d} | COSTS for d in home]}
        if name == "two routes":
            both = [{"stages": [*range(4)]}, {"stages": [*range(4, 8)]}]
            doc["routes"] = [route | {"microbatches": 8} for route in both]
        else:
            doc["microbatches"] = 8
        yield pipesat.Problem.from_document(doc)


def schedules(problem: pipesat.Problem) -> Iterator[tuple[str, pipesat.Schedule]]:
    """Every hand-written schedule that exists there and fits."""
    for name in pipesat.baselines():
        try:
            schedule = schedule_of(problem, name)
        except pipesat.NotApplicable:
            continue
        if not pipesat.check(problem, schedule):
            yield name, schedule


def main() -> None:
    page = HERE / "README.md"
    text = table(("from", "file", "what", *RULES), known())
    put(page, "known", f"Each file as it stands.\n\n{text}")
    found: Counter[tuple[str, str, str]] = Counter()
    every = [*problems()]
    for problem in every:
        for name, schedule in schedules(problem):
            for rule in RULES:
                found[name, rule, kind(pipesat.check(problem, schedule, runtime=rule))] += 1
    rows = []
    for name in sorted({name for name, *_ in found}):
        cells = [[found[name, rule, k] for k in ("safe", "crossed", "hangs")] for rule in RULES]
        rows.append([name, *(" / ".join(map(str, cell)) for cell in cells)])
    text = table(("schedule", *RULES), rows)
    put(page, "schedules", f"{len(every)} problems. Safe / crossed / hangs:\n\n{text}")


if __name__ == "__main__":
    main()
