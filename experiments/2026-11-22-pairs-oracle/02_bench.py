"""The closed forms of the benchmark's problems with pairs, beside the best values known.

python experiments/2026-11-22-pairs-oracle/02_bench.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.bounds.one_device import closed_form_bound  # noqa: E402
from pipesat.files.problem_file import read_problem  # noqa: E402


def main() -> None:
    lines = ["| problem | makespan at least | span at least | ms for both |", "|---|---|---|---|"]
    for path in sorted((HERE.parent / "bench-next" / "problems").glob("pair-*.json")):
        problem = read_problem(path)
        began = perf_counter()
        makespan, span = (closed_form_bound(problem, x).value for x in ("makespan", "span"))
        spent = round(1000 * (perf_counter() - began))
        lines.append(f"| `{path.stem}` | {makespan:,} | {span:,} | {spent} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
