"""Known hangs, rebuilt as files: what each rule says of them; the table goes into README.md.

python experiments/hangs/known.py
"""

from __future__ import annotations

import json
from pathlib import Path

from tables import put

import pipesat
from pipesat.hangs.step_lists import RULES
from pipesat.hangs.verdict import posted_in, verdict
from pipesat.workflows.schedules import schedule_of

HERE = Path(__file__).resolve().parent


def main() -> None:
    lines = [["from", "file", "what", *RULES], ["---"] * (3 + len(RULES))]
    for known in json.loads((HERE / "known.json").read_text()):
        problem = pipesat.Problem.read(HERE / "known" / known["problem"])
        name = known["file"]
        path = HERE / "known" / name if name.endswith(".csv") else Path(name)
        schedule = schedule_of(problem, str(path))
        posted = posted_in(path, problem, schedule.order)
        cells = []
        for rule in RULES:
            said = verdict(problem, schedule, rule, posted)
            cells.append("hangs" if said.cycle else "crossed" if said.crossed else "safe")
        lines.append([known["source"], f"`{name}`", known["what"], *cells])
    put(HERE / "README.md", "known", lines, "Each file as it stands.")


if __name__ == "__main__":
    main()
