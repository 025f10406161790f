"""Print the goals of one search for all kinds of problems, with what a run of a minute each had.

    python ../2026-11-21-benchmark/1_solve.py --limit 60 --workers 2 --repeat 1 --folder DIR --out F
    python goals.py --keep F [F ...]     keep the runs of bench and bench-next in runs.json
    python goals.py                      print the table

The problems that mix kinds are those of ``run.py``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).parent
RUNS = HERE / "runs.json"
KEPT = ("problem", "status", "value", "bound", "gap", "wall_s")
KINDS = {"pair": ("pairs", 2.8), "class": ("classes", 1.8), "mode": ("modes", 3.1)}
PROVEN, GAP = 69, 0.28  # of the 81
WITH_PAIRS = ("mix-pairs", "mix-all")

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", nargs="+", type=Path, default=[], metavar="FILE")
    files = parser.parse_args().keep
    if files:
        lines = [line for file in files for line in file.read_text().splitlines()]
        rows = [{key: row[key] for key in KEPT} for row in map(json.loads, lines)]
        RUNS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    print("\n".join(["| problems | goal | had |", "|---|---|---|", *lines_of_table()]))


def lines_of_table() -> Iterator[str]:
    """Yield a line per goal."""
    rows = {row["problem"]: row for row in json.loads(RUNS.read_text())}
    plain = [row for name, row in rows.items() if name.partition("-")[0] not in KINDS]
    proven = sum(row["status"] == "optimal" for row in plain)
    goal = f"at least {PROVEN} proven, mean gap at most {GAP} %"
    yield f"| bench ({len(plain)}) | {goal} | {proven} proven, {_mean(plain):.2f} % |"
    for kind, (name, most) in KINDS.items():
        own = [row for problem, row in rows.items() if problem.startswith(kind)]
        proven = sum(row["status"] == "optimal" for row in own)
        had = f"{_mean(own):.2f} %, {proven} proven"
        yield f"| bench-next, {name} ({len(own)}) | mean gap at most {most} % | {had} |"
    mixed = {
        name: row | {"gap": 1 - row["bound"] / row["value"]}
        for name, row in json.loads((HERE / "results.json").read_text()).items()
    }
    pairs = [row for name, row in mixed.items() if name.startswith(WITH_PAIRS)]
    alone = [row for name, row in mixed.items() if not name.startswith(WITH_PAIRS)]
    first = max(row["first"] for row in mixed.values())
    yield f"| bench-mix ({len(mixed)}) | a schedule within 5 s | within {first:.1f} s |"
    yield f"| without pairs ({len(alone)}) | mean gap at most 5 % | {_mean(alone):.2f} % |"
    yield f"| with pairs ({len(pairs)}) | mean gap at most 10 % | {_mean(pairs):.2f} % |"


def _mean(rows: list[Row]) -> float:
    return 100 * fmean(row["gap"] for row in rows)


if __name__ == "__main__":
    main()
