"""Solve the problems with memory modes; write results.json.

python 01_solve.py [--seconds 60] [--workers 2] [--only NAME ...]

--only takes the problems whose name has that; the results of others stay.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter

from cases import RESULTS, problems

import pipesat


def main() -> None:
    parser = argparse.ArgumentParser(description="Solve the problems with memory modes.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each problem")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text())
    for name, problem in problems():
        if not any(part in name for part in options.only):
            continue
        result = pipesat.solve(problem, time_limit=options.seconds, workers=options.workers)
        assert result.schedule is not None
        assert result.lower_bound is not None
        used = Counter(result.schedule.modes.values())
        results[name] = {
            "status": result.status,
            "value": result.value,
            "bound": result.lower_bound,
            "by": result.lower_bound_source,
            "modes": {problem.stages[0].modes[mode - 1].name: n for mode, n in used.items()},
        }
        print(name, results[name], flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
