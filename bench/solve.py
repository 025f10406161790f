"""Solve every problem: value, bound, gap, seconds to first, best and proof, memory, history.

    python bench/solve.py [--limit S] [--repeat N] [--only GLOB] ...

Appends to results/solve.jsonl. Of several runs, tables take the median.
"""

import sys

import ours
from runner import main, repeated

VARIANT = "pipesat"

if __name__ == "__main__":
    sys.exit(
        main(
            __file__,
            lambda options, files: repeated(options, files, [VARIANT]),
            ours.measure,
            description=__doc__,
        )
    )
