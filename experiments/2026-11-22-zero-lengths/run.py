"""Random problems with ops of length zero against an exact oracle; the table goes into README.md.

    python experiments/2026-11-22-zero-lengths/run.py [PROBLEMS] [FIRST_SEED]

Every problem is solved for both objectives on one thread; status, value, bound and feasibility are
held against a model of times and instants that shares no code with pipesat.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.core.schedule import Objective  # noqa: E402
from tests.support.against_oracle import judged  # noqa: E402
from tests.support.zero_lengths import random_document  # noqa: E402

BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->"
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
SECONDS = 10.0


def cases(count: int, first: int) -> Iterator[tuple[str, Objective, str, list[str]]]:
    """Judge so many problems for each objective."""
    for seed in range(first, first + count):
        for zeros in (True, False):
            document = random_document(Random(seed), zeros=zeros)
            for objective in OBJECTIVES:
                status, wrong, _ = judged(document, objective, SECONDS)
                for complaint in wrong:
                    print(f"seed {seed}, zeros {zeros}, {objective}: {complaint}", flush=True)
                yield "with ops of length zero" if zeros else "without", objective, status, wrong


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found: Counter[tuple[str, str, str]] = Counter()
    for kind, objective, status, wrong in cases(count, first):
        found[kind, objective, status] += 1
        found[kind, objective, "violations"] += len(wrong)
    columns = ("optimal", "feasible", "infeasible", "unknown", "error", "violations")
    lines = [["problems", "objective", *columns], ["---"] * (2 + len(columns))]
    for kind, objective in sorted({key[:2] for key in found}):
        lines.append([kind, objective, *(str(found[kind, objective, c]) for c in columns)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    print(table)
    readme = HERE / "README.md"
    text = readme.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    seeds = f"Seeds {first} to {first + count - 1}, at most {SECONDS:.0f} s a solve, one thread."
    readme.write_text(f"{head}{BEGIN}{seeds}\n\n{table}\n{END}{tail}")
    sys.exit(any(found[key] for key in found if key[2] == "violations"))


if __name__ == "__main__":
    main()
