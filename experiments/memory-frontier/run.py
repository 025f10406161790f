"""The memory frontier of the 6.2B case on 8 devices, 16 microbatches: chain, V and loop.

    python experiments/memory-frontier/run.py [--time-limit S] [--only NAME ...]

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
from pipesat.frontier.trace import Frontier, trace
from pipesat.picture.figures import files_of
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
    found = Frontiers(curves, about)
    print_answer(found)
    write_results(options.results, found)
    if options.results == HERE:
        update_readme(HERE / "README.md", curves, about)
    if options.out is not None:
        prepare_folder(options.out)
        found.save(options.out)


def write_results(folder: Path, found: Frontiers) -> None:
    figure = found.plot("6.2B, 8 devices, 16 microbatches: what memory buys")
    result = json.dumps(found.document(), indent=1) + "\n"
    prepare_folder(folder)
    files = {f"frontier.{kind}": data for kind, data in files_of(figure).items()}
    write_files(folder, files | {"frontier.csv": found.csv(), "frontier.json": result.encode()})


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
        cap = "unlimited"
        if row.cap is not None and frontier.scale is not None:
            cap = f"{frontier.scale.share(row.cap):.3f}"
        value = "-" if row.known is None else f"{row.known.value:,}"
        bound = "-" if row.bound is None else f"{row.bound.value:,}"
        share = row.standing.gap
        gap = "-" if share is None else f"{100 * share:.2f} %" if share else "0"
        best = row.baseline
        hand = "-" if best is None else f"{best.value:,} ({best.name})"
        lines.append(f"| {cap} | {value} | {bound} | {gap} | {hand} |")
    above = []
    for written, known in frontier.published.items():
        at_peak = frontier.curve.value(known.peak)
        assert at_peak is not None
        assert at_peak <= known.value, written
        share = known.value / at_peak - 1
        above.append(f"{written} {100 * share:.2f} %" if share else f"{written} 0")
    return "\n".join(lines) + f"\n\nAbove the curve at their own peak: {', '.join(above)}."


if __name__ == "__main__":
    main()
