"""Where the bound lacks: a chain of four with few microbatches, by device and as a whole.

``small.py MOST`` prints, for 3 to MOST microbatches of ``mode-recompute-chain-p4-m12-cap0.5``, the
optimum of each device alone, of the whole in one order, and of the whole in any order; and at last
that of all 12 in one order.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from pipesat.files.problem_file import read_problem

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.optimum import least_end, least_schedule  # noqa: E402

PROBLEMS = ROOT / "bench" / "beyond" / "problems"
NAME = "mode-recompute-chain-p4-m12-cap0.5"
FIRST, EACH = 200_000, 110_000  # there are schedules of FIRST + m EACH

KNOWN = 1_255_752  # a schedule of all 12


def main(most: int) -> None:
    """Print a table."""
    whole = read_problem(PROBLEMS / f"{NAME}.json")
    print("| microbatches | devices alone | in one order | in any order | gap |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for count in range(3, most + 1):
        routes = tuple(replace(route, microbatches=count) for route in whole.routes)
        problem = replace(whole, routes=routes)
        order, _ = least_schedule(problem, FIRST + count * EACH, one_order=True) or (None, None)
        assert order is not None
        free, _ = least_schedule(problem, order) or (None, None)
        assert free is not None
        devices = range(len(problem.devices))
        ends = [least_end(problem, device, order, absolute=True) or 0 for device in devices]
        alone = " ".join(f"{end:,}" for end in ends)
        gap = 1 - max(ends) / free
        print(f"| {count} | {alone} | {order:,} | {free:,} | {gap:.1%} |", flush=True)
    best, _ = least_schedule(whole, KNOWN, one_order=True) or (None, None)
    print(f"12 in one order: {best:,}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
