"""Solve a selection of the benchmark, then value the schedules on queued links and under noise.

    python experiments/risk/run.py [--time-limit S] [NAME ...]

A row compares a solve's schedule with the best hand-written one that fits, list scheduling (which
is ours too) left out.
"""

from __future__ import annotations

import argparse
import os
import platform
from datetime import date
from pathlib import Path

import pipesat
from pipesat.core.schedule import Order
from pipesat.files.problem_file import read_problem
from pipesat.heuristics import BASELINES, LIST_SCHEDULING
from pipesat.risk.robustness import Noise
from pipesat.workflows.risk import rows_of

HERE = Path(__file__).resolve().parent
PROBLEMS = HERE.parent / "bench" / "problems"
SELECTION = (HERE / "selection.txt").read_text().split()
NOISES = (Noise(0.05), Noise(0.05, 0.02), Noise(0.15))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("names", nargs="*", default=SELECTION)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{date.today()}, {cores} cores, Python {platform.python_version()}, ", end="")
    print(f"limit {options.time_limit:g} s, {options.samples} samples, seed 0\n")
    noises = " | ".join(
        f"noise {100 * n.relative:g} %, skew {100 * n.skew:g} %: p50, p5, ahead" for n in NOISES
    )
    print("| problem | baseline | gain | lost per pair, ours / baseline | gain per pair | ", end="")
    print(f"lost per rank, ours / baseline | {noises} |")
    print("|---" * (6 + len(NOISES)) + "|", flush=True)
    for name in options.names:
        print(row(name, options.time_limit, options.samples), flush=True)


def row(name: str, time_limit: float, samples: int) -> str:
    problem = read_problem(PROBLEMS / f"{name}.json")
    found = pipesat.solve(problem, time_limit=time_limit, workers=2)
    assert found.schedule is not None
    baseline, order = best_baseline(problem)
    orders = {"ours": found.schedule.order, baseline: order}
    found_with = [rows_of(problem, orders, noise, samples=samples) for noise in NOISES]
    ours, other = found_with[0]
    free, queued = ([x.links[links] for x in (ours, other)] for links in ("independent", "pair"))
    cells = [
        name,
        baseline,
        percent(1 - free[0] / free[1]),
        " / ".join(percent(x.lost("pair")) for x in (ours, other)),
        percent(1 - queued[0] / queued[1]),
        " / ".join(percent(x.lost("rank")) for x in (ours, other)),
    ]
    for _, row in found_with:
        gain = row.gain
        assert gain is not None
        cells.append(f"{percent(gain.p50)}, {percent(gain.p05)}, {100 * gain.ahead:.0f} %")
    return "| " + " | ".join(cells) + " |"


def best_baseline(problem: pipesat.Problem) -> tuple[str, Order]:
    """The best hand-written schedule that fits; list scheduling where there is none."""
    found: list[tuple[int, str, Order]] = []
    for name, function in BASELINES.items():
        try:
            schedule = function(problem)
        except pipesat.NotApplicable:
            continue
        if not pipesat.check(problem, schedule):
            found.append((schedule.makespan, name, schedule.order))
    published = [entry for entry in found if entry[1] != LIST_SCHEDULING]
    _, name, order = min(published or found, key=lambda entry: entry[0])
    return name, order


def percent(share: float) -> str:
    return f"{round(100 * share, 2) + 0.0:.2f} %"  # no -0.00


if __name__ == "__main__":
    main()
