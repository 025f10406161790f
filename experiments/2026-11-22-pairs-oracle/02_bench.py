"""The closed forms of the benchmark's problems with pairs, beside the best hand-written schedule.

python experiments/2026-11-22-pairs-oracle/02_bench.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.bounds.closed_form import closed_form_bound  # noqa: E402
from pipesat.core.checker import check  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.files.problem_file import read_problem  # noqa: E402
from pipesat.workflows.hand_written import hand_written  # noqa: E402


def best(problem: Problem) -> str:
    """Return the least makespan of a valid hand-written schedule, and its name."""
    found = [
        (row.schedule.makespan, row.name)
        for row in hand_written(problem, "makespan")
        if row.schedule is not None and not check(problem, row.schedule)
    ]
    value, name = min(found)
    return f"{value:,} ({name})"


def main() -> None:
    heads = ("makespan at least", "best hand-written", "span at least", "processor ms, both bounds")
    print(f"| problem | {' | '.join(heads)} |")
    print("|---|---|---|---|---|")
    for path in sorted((HERE.parent / "bench-next" / "problems").glob("pair-*.json")):
        problem = read_problem(path)
        began = process_time()
        makespan, span = (closed_form_bound(problem, x).value for x in ("makespan", "span"))
        spent = round(1000 * (process_time() - began))
        print(
            f"| `{path.stem}` | {makespan:,} | {best(problem)} | {span:,} | {spent} |", flush=True
        )


if __name__ == "__main__":
    main()
