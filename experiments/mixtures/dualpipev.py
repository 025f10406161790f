"""DualPipeV's order with memory modes: the shortest of those that fit.

python dualpipev.py
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

from pipesat.core.checker import check
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem
from pipesat.heuristics import BASELINES
from pipesat.solver.modes.starts import orders_from

PROBLEMS = Path(__file__).parent.parent / "bench" / "mixed" / "problems"


def main() -> None:
    for path in sorted(PROBLEMS.glob("mix-pairs-recompute-*.json")):
        document = json.loads(path.read_text())
        problem = parse_problem(document)
        free = copy.deepcopy(document)
        for device in free["devices"]:
            del device["memory"]
        for stage in free["stages"]:
            del stage["modes"]
        guide = BASELINES["dualpipev"](parse_problem(free))
        made = [
            time_order(problem, *start[:1], source=start.source)
            for start in orders_from(problem, [guide])
        ]
        best = min((s for s in made if not check(problem, s)), key=lambda s: s.makespan)
        print(path.stem, best.makespan, best.source)


if __name__ == "__main__":
    main()
