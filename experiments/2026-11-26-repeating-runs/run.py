"""Greedy runs that leave out what repeats, against runs that simulate everything.

python experiments/2026-11-26-repeating-runs/run.py [PROBLEMS]
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.repeating import left_out


def main(problems: int) -> None:
    found = Counter[str]()
    for seed in count():
        found += left_out(seed)
        if found["problems"] == problems:
            print(f"seeds 0 to {seed}")
            break
    for what, number in sorted(found.items()):
        print(f"{what}: {number:,}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 600)
