"""Solve a selection of the benchmark and print a table: what is proven, and how fast.

    python experiments/2026-11-21-first-proofs/run.py [--time-limit S] [NAME ...]

Every row is a fresh `pipesat solve --json`, timed from outside, so it includes start-up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROBLEMS = HERE.parent / "bench" / "problems"
SELECTION = (HERE / "selection.txt").read_text().split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--objective", default="makespan")
    parser.add_argument("names", nargs="*", default=SELECTION)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{date.today()}, {cores} cores, Python {platform.python_version()}, ", end="")
    print(f"limit {options.time_limit:g} s, objective {options.objective}\n")
    print("| problem | best valid baseline | value | bound | gap | status | seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.names:
        print(row(name, options.time_limit, options.objective), flush=True)


def row(name: str, time_limit: float, objective: str) -> str:
    command = [sys.executable, "-m", "pipesat", "solve", str(PROBLEMS / f"{name}.json"), "--json"]
    command += ["--time-limit", str(time_limit), "--objective", objective]
    began = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - began
    result = json.loads(run.stdout)
    baseline = result["baseline"]
    cells = [
        name,
        f"{baseline['value']} ({baseline['name']})",
        result["value"],
        result["lower_bound"],
        f"{100 * result['gap']:.2f} %",
        result["status"],
        f"{seconds:.1f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
