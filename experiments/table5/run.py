"""Table 5 of the Zero Bubble paper: printed bubble rates, ours, and the least that can be.

    python experiments/table5/run.py [--time-limit S]

Solves the span of the table's 12 rows at the memory of ZB-1p and at that of ZB-2p, and writes the
table into README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import replace
from datetime import date
from pathlib import Path

import pipesat
from pipesat.core.timing import time_order
from pipesat.files.problem_file import read_problem

HERE = Path(__file__).resolve().parent
BENCH = HERE.parent / "bench"
BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->"
COLUMNS = (
    "row",
    "1F1B printed",
    "1F1B",
    "ZB-1p printed",
    "ZB-H1",
    "least in ZB-1p's memory",
    "ZB-2p printed",
    "zb-auto-span",
    "best found",
    "least in ZB-2p's memory",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds per solve")
    parser.add_argument("--readme", type=Path, default=HERE / "README.md")
    options = parser.parse_args()
    reference = json.loads((BENCH / "reference.json").read_text())
    lines = [COLUMNS, ("---",) * len(COLUMNS)]
    for path in sorted((BENCH / "problems").glob("table5-*-cap1.json"), key=size):
        name = path.stem.removesuffix("-cap1")
        lines.append(row(name, reference[path.stem]["printed_bubble_of_span"], options.time_limit))
        print(*lines[-1])
    about = (
        f"{date.today()}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, at most {options.time_limit:g} s per solve. "
        "Rates in per cent.\n\n"
    )
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    head, rest = options.readme.read_text().split(BEGIN)
    _, tail = rest.split(END)
    options.readme.write_text(f"{head}{BEGIN}{about}{table}\n{END}{tail}")


def size(path: Path) -> tuple[float, int]:
    """Model size and microbatches of a row's file name."""
    _, model, _, m, _ = path.stem.split("-")
    return float(model.removesuffix("B")), int(m[1:])


def row(name: str, printed: dict[str, float], limit: float) -> tuple[str, ...]:
    """One row: everything as 1 - load / span, the paper's bubble rate."""
    tight, wide = (read_problem(BENCH / "problems" / f"{name}-cap{cap}.json") for cap in (1, 2))
    load = max(tight.microbatches[i] * (s.F + s.B + s.W) for i, s in enumerate(tight.stages))
    one, two = (
        pipesat.solve(problem, objective="span", time_limit=limit) for problem in (tight, wide)
    )
    classic = replace(tight, stages=tuple(replace(s, backward="fused") for s in tight.stages))
    return (
        name.removeprefix("table5-"),
        f"{100 * printed['1F1B']:.2f}",
        rate(load, span(classic, "1f1b")),
        f"{100 * printed['ZB-1p']:.2f}",
        rate(load, span(tight, "zb-h1")),
        least(load, one),
        f"{100 * printed['ZB-2p']:.2f}",
        rate(load, span(wide, "zb-auto-span")),
        rate(load, two.value),
        least(load, two),
    )


def span(problem: pipesat.Problem, baseline: str) -> int:
    """Span of a hand-written schedule, timed for it; it must fit into memory."""
    schedule = time_order(problem, problem.schedule(baseline).order, "span")
    if violations := pipesat.check(problem, schedule):
        raise SystemExit(f"{baseline} on {problem.name}: {violations[0]}")
    return schedule.span


def rate(load: int, span: int | None) -> str:
    """Bubble of the span in per cent."""
    return "-" if span is None else f"{100 * (1 - load / span):.2f}"


def least(load: int, result: pipesat.Result) -> str:
    """The rate that no schedule is below; bold where one attains it."""
    bound = result.lower_bound
    text = rate(load, bound)
    return f"**{text}**" if result.status == "optimal" else text


if __name__ == "__main__":
    main()
