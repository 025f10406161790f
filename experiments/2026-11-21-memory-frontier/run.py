"""The memory frontier of the 6.2B case on 8 devices, 16 microbatches: chain, V and loop.

    python experiments/2026-11-21-memory-frontier/run.py [--time-limit S] [--only NAME ...]

Traces each placement for S seconds on all cores it may use and writes the curves of all of them as
tables (frontier.csv, frontier.json, README.md between its marks) and one picture; with --out DIR,
also every problem and schedule into DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import date
from pathlib import Path

from pipesat.cli.terminal import print_answer
from pipesat.files.atomic import prepare_folder, write_files
from pipesat.files.problem_file import read_problem
from pipesat.frontier.answers import Frontiers
from pipesat.frontier.files import csv_bytes, document, staircases, write_frontier
from pipesat.frontier.picture import frontier_pictures
from pipesat.frontier.trace import Frontier, trace
from pipesat.workflows.hand_written import published
from pipesat.workflows.studies import solver_of, versions

BEGIN, END = "<!-- begin results -->\n", "<!-- end results -->"
HERE = Path(__file__).resolve().parent
PROBLEMS = HERE.parent / "bench" / "problems"
PLACEMENTS = {
    "chain": "lowcap-6.2B-p8-m16-cap0.5",
    "vee": "vee-6.2B-p8-m16-cap1",
    "loop v=2": "loop2-6.2B-p8-m16-cap1",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=580.0, help="seconds per placement")
    parser.add_argument("--only", nargs="*", choices=PLACEMENTS, default=list(PLACEMENTS))
    parser.add_argument("--results", type=Path, default=HERE, help="folder of table and picture")
    parser.add_argument("--out", type=Path, help="folder of all problems and schedules")
    options = parser.parse_args()
    curves: dict[str | None, Frontier] = {}
    for name in options.only:
        print(f"{name}: {options.time_limit:g} s", file=sys.stderr)
        curves[name] = trace(
            read_problem(PROBLEMS / f"{PLACEMENTS[name]}.json"),
            solve=solver_of("makespan", None, 0),
            baselines=published(),
            time_limit=options.time_limit,
        )
    about = {
        "date": str(date.today()),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "time_limit": options.time_limit,
        "seed": 0,
        "versions": versions(),
    }
    print(json.dumps(about), "\n")
    print_answer(Frontiers(curves))
    write_results(options.results, curves, about)
    if options.results == HERE:
        update_readme(HERE / "README.md", curves, about)
    if options.out is not None:
        prepare_folder(options.out)
        write_frontier(options.out, curves, **about)


def write_results(
    folder: Path, curves: dict[str | None, Frontier], about: dict[str, object]
) -> None:
    first = next(iter(curves.values()))
    pictures = frontier_pictures(
        first.curve.problem,
        "makespan",
        staircases(curves),
        first.scale,
        title="6.2B, 8 devices, 16 microbatches: what memory buys",
    )
    result = json.dumps(document(curves, None, **about), indent=1) + "\n"
    prepare_folder(folder)
    files = {f"frontier.{kind}": data for kind, data in pictures.items()}
    write_files(
        folder, files | {"frontier.csv": csv_bytes(curves), "frontier.json": result.encode()}
    )


def update_readme(path: Path, curves: dict[str | None, Frontier], about: dict[str, object]) -> None:
    """Put the tables between the marks of the page."""
    head, _, rest = path.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    words = [f"{about['date']}", f"{about['cores']} cores", f"Python {about['python']}"]
    words += [f"at most {about['time_limit']:g} s per placement", "seed 0"]
    parts = [", ".join(words) + "."]
    parts += [table(str(name), frontier) for name, frontier in curves.items()]
    path.write_text(head + BEGIN + "\n\n".join(parts) + "\n" + END + tail)


def table(name: str, frontier: Frontier) -> str:
    lines = [f"| {name}: cap, x 1F1B | makespan | bound | gap | best hand-written that fits |"]
    lines.append("|---|---|---|---|---|")
    for row in frontier.rows:
        cap = "unlimited" if row.share is None else f"{row.share:.3f}"
        value = "-" if row.known is None else f"{row.known.value:,}"
        bound = "-" if row.bound is None else f"{row.bound.value:,}"
        gap = "-" if row.gap is None else f"{100 * row.gap:.2f} %" if row.gap else "0"
        best = row.baseline
        written = "-" if best is None else f"{best.value:,} ({best.name})"
        lines.append(f"| {cap} | {value} | {bound} | {gap} | {written} |")
    above = []
    for point in frontier.points:
        at_peak = frontier.curve.value(point.known.peak)
        assert at_peak is not None
        assert at_peak <= point.known.value, point.name
        share = point.known.value / at_peak - 1
        above.append(f"{point.name} {100 * share:.2f} %" if share else f"{point.name} 0")
    return "\n".join(lines) + f"\n\nAbove the curve at their own peak: {', '.join(above)}."


if __name__ == "__main__":
    main()
