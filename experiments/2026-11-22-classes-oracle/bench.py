"""Solve the benchmark problems with classes; print value, bound and gap beside the best rule."""

from __future__ import annotations

import sys
from pathlib import Path

from pipesat.files.problem_file import read_problem

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import pipesat  # noqa: E402
from pipesat.core.claims import percent  # noqa: E402

PROBLEMS = ROOT / "experiments" / "bench-next" / "problems"


def main(seconds: float, workers: int) -> None:
    """Print a row per problem as soon as it is solved, and the mean gap."""
    gaps = []
    print("| problem | best rule | value | bound | gap | status |\n|---|---|---|---|---|---|")
    for path in sorted(PROBLEMS.glob("class-*.json")):
        problem = read_problem(path)
        result = pipesat.solve(problem, time_limit=seconds, workers=workers)
        best = result.baseline
        rule = "-" if best is None else f"{best.name}: {best.value}"
        bound = result.lower_bound
        cells = [path.stem, rule, result.value, bound, percent(result.gap), result.status]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        gaps.append(result.gap or 0.0)
    print(f"\nmean gap {percent(sum(gaps) / len(gaps))}")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
