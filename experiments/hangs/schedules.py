"""Every hand-written schedule under every rule, on examples/ and five uniform pipelines.

    python experiments/hangs/schedules.py

The table goes into README.md: on how many problems it is safe / mixes up messages / hangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tables import put

import pipesat
from pipesat.hangs.step_lists import RULES

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
COSTS = {"F": 2, "B": 2, "W": 2, "held_after_F": 1}
PLACES = {
    "chain": [*range(4)],
    "loop": [s % 4 for s in range(8)],
    "two ranks": [0, 1, 0, 1],
    "vee": [min(s, 7 - s) for s in range(8)],
    "two routes": [*range(4), *range(3, -1, -1)],
}


def problems() -> Iterator[pipesat.Problem]:
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


def main() -> None:
    found: Counter[tuple[str, str, str]] = Counter()
    every = [*problems()]
    for problem in every:
        for name in pipesat.baselines():
            try:
                schedule = problem.schedule(name)
            except pipesat.NotApplicable:
                continue
            if pipesat.check(problem, schedule):
                continue  # more memory than there is
            for rule in RULES:
                said = pipesat.check(problem, schedule, runtime=rule)
                kind = "hang" if said.cycle else "cross" if said.crossed else "safe"
                found[name, rule, kind] += 1
        print(problem.name, flush=True)
    lines = [["schedule", *RULES], ["---"] * (1 + len(RULES))]
    for name in sorted({name for name, *_ in found}):
        cells = ([found[name, rule, kind] for kind in ("safe", "cross", "hang")] for rule in RULES)
        lines.append([name, *(" / ".join(map(str, cell)) for cell in cells)])
    put(HERE / "README.md", "schedules", lines, f"{len(every)} problems. Safe / crossed / hangs:")


if __name__ == "__main__":
    main()
