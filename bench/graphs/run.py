"""Tables of docs/graphs.md: six problems beside published rules, and which slicing is shorter.

python bench/graphs/run.py --limit 60
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pipesat
from bench.pages import measured, percent, put, table
from pipesat.compare.from_numbers import problem_from_numbers
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "graphs.md"
OWN = {"list-scheduling", "lockstep", "greedy-pairs"}


def best_rule(problem: pipesat.Problem) -> str:
    """The shortest published schedule that fits memory, with its makespan."""
    found = []
    for entry in BASELINES.values():
        if entry.graphs and entry.name not in OWN:
            try:
                schedule = entry(problem)
            except NotApplicable:
                continue
            if not pipesat.check(problem, schedule):
                found.append((schedule.makespan, entry.name))
    return f"{min(found)[0]:,} ({min(found)[1]})" if found else "none fits"


def problems(limit: float) -> str:
    """Value, bound and time of each problem."""
    rows = []
    for path in sorted((HERE / "problems").glob("*.json")):
        problem = pipesat.Problem.read(path)
        found = pipesat.solve(problem, time_limit=limit, workers=2)
        assert found.value is not None
        gap = "proven" if found.status == "optimal" else percent(found.gap)
        seconds = f"{found.wall_s:.1f} s"
        rows.append([f"`{path.stem}`", f"{found.value:,}", gap, seconds, best_rule(problem)])
    return table(["problem", "makespan", "gap", "after", "best published rule"], rows, right=1)


def slicings(limit: float) -> str:
    """Even tokens beside even time, of 4 sequences on 4 devices, half the time quadratic."""
    rows = []
    for slices in (2, 4, 8):
        row: list[object] = [slices]
        for slicing in ("tokens", "time"):
            problem = problem_from_numbers(
                devices=4,
                F=8000,
                B=9000,
                W=7000,
                held_after_F=800,
                lengths=[32768] * 4,
                reference=32768,
                quadratic=0.5,
                slices=slices,
                slicing=slicing,
            )
            found = pipesat.solve(problem, time_limit=limit, workers=2)
            rule = BASELINES["seq1f1b"](problem)
            peak = max(pipesat.schedule_of(problem, "seq1f1b").peak_memory)
            gap = "proven" if found.status == "optimal" else f"gap {percent(found.gap)}"
            row += [f"{rule.makespan:,}", f"{peak:,}", f"{found.value:,} ({gap})"]
        rows.append(row)
    heads = ["slices"]
    for slicing in ("tokens", "time"):
        heads += [f"even {slicing}: Seq1F1B", "its peak", "solver"]
    return table(heads, rows, right=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=60.0)
    limit = parser.parse_args().limit
    said = measured(f"two workers, {limit:.0f} s each")
    put(PAGE, "problems", f"{said}\n\n{problems(limit)}")
    put(PAGE, "slicing", f"{said}\n\n{slicings(limit)}")


if __name__ == "__main__":
    main()
