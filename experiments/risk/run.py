"""Solve 13 benchmark problems, then value the schedules on queued links and under noise.

    python -m experiments.risk.run [--time-limit S] [--only GLOB]

A row compares a solve's schedule with the best hand-written one that fits, list scheduling (which
is ours too) left out. Fills the table of README.md.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pipesat
from bench.pages import measured, put, table

HERE = Path(__file__).resolve().parent
PROBLEMS = HERE.parents[1] / "bench" / "plain" / "problems"
NAMES = (
    *("table5-6.2B-p8-m24-cap1", "table5-6.2B-p8-m24-cap2", "lowcap-6.2B-p8-m16-cap0.75"),
    *("lowcap-6.2B-p8-m16-cap0.5", "uneven-6.2B-s1-p8-m16-cap1", "uneven-6.2B-s2-p8-m16-cap1.5"),
    *("vee-6.2B-p4-m8-cap0.75", "vee-6.2B-p8-m16-cap1", "loop2-6.2B-p8-m16-cap1"),
    *("head-6.2B-p8-m16-cap1", "torch-6.2B-p4-m8-cap8", "torch-6.2B-p8-m16-cap12"),
    "bidir-6.2B-p4-m8",
)
NOISES = (("5%", "0%"), ("5%", "2%"), ("15%", "0%"))
HEADS = (
    *("problem", "baseline", "gain", "lost per pair, ours / baseline", "gain per pair"),
    "lost per rank, ours / baseline",
    *(f"noise {noise}, skew {skew}: p50, p5, ahead" for noise, skew in NOISES),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds per problem")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--only", default="*", metavar="GLOB", help="problems by name")
    options = parser.parse_args()
    rows = [line(name, options) for name in NAMES if fnmatch(name, options.only)]
    limit = f"limit {options.time_limit:g} s", f"{options.samples} samples, seed 0"
    text, whole = f"{measured(*limit)}\n\n{table(HEADS, rows)}", len(rows) == len(NAMES)
    put(HERE / "README.md", "table", text, whole=whole)


def line(name: str, options: argparse.Namespace) -> list[str]:
    problem = pipesat.Problem.read(PROBLEMS / f"{name}.json")
    found = pipesat.solve(problem, time_limit=options.time_limit, workers=2)
    assert found.schedule is not None
    noise, *others = [
        pipesat.risk(problem, found.schedule, noise=noise, skew=skew, samples=options.samples)
        for noise, skew in NOISES
    ]
    ours, other = best(noise.document()["links"])
    cells = [name, other["name"], share(1 - ours["independent"] / other["independent"])]
    for links in ("pair", "rank"):
        lost = (share(row[links] / row["independent"] - 1) for row in (ours, other))
        cells.append(" / ".join(lost))
        if links == "pair":
            cells.append(share(1 - ours["pair"] / other["pair"]))
    for said in (noise, *others):
        rows = {row["name"]: row["gain"] for row in said.document()["noise"]["rows"]}
        gain = rows[other["name"]]
        cells.append(f"{share(gain['p50'])}, {share(gain['p05'])}, {100 * gain['ahead']:.0f} %")
    return cells


def best(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ours, and the shortest hand-written one, list scheduling left out if there is another."""
    ours, *others = rows
    published = [row for row in others if row["name"] != "list-scheduling"]
    return ours, min(published or others, key=lambda row: row["independent"])


def share(part: float) -> str:
    return f"{round(100 * part, 2) + 0.0:.2f} %"  # no -0.00


if __name__ == "__main__":
    main()
