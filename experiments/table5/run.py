"""Table 5 of the Zero Bubble paper: printed bubble rates, ours, and the least that can be.

    python -m experiments.table5.run [--time-limit S] [--only GLOB]

Solves the span of the table's 12 rows at the memory of ZB-1p and at that of ZB-2p, and fills the
table of README.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pipesat
from bench.pages import measured, put, table
from pipesat.compare.schedules import schedule_of
from pipesat.schedule.timing import time_order

HERE = Path(__file__).resolve().parent
BENCH = HERE.parents[1] / "bench" / "plain"
COLUMNS = (
    *("row", "1F1B printed", "1F1B", "ZB-1p printed", "ZB-H1", "least in ZB-1p's memory"),
    *("ZB-2p printed", "zb-auto-span", "best found", "least in ZB-2p's memory"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds per solve")
    parser.add_argument("--only", default="*", metavar="GLOB", help="rows by name, as 6.2B-p8-m24")
    options = parser.parse_args()
    files = (BENCH / "problems").glob(f"table5-{options.only}-cap1.json")
    printed = json.loads((BENCH / "reference.json").read_text())
    rows = []
    for path in sorted(files, key=size):
        name, rates = path.stem.removesuffix("-cap1"), printed[path.stem]["printed_bubble_of_span"]
        rows.append(row(name, rates, options.time_limit))
    limit = f"at most {options.time_limit:g} s per solve"
    text = f"{measured(limit)} Rates in per cent.\n\n{table(COLUMNS, rows)}"
    put(HERE / "README.md", "table", text, whole=options.only == "*")


def size(path: Path) -> tuple[float, int]:
    """Model size and microbatches of a row's file name."""
    _, model, _, m, _ = path.stem.split("-")
    return float(model.removesuffix("B")), int(m[1:])


def row(name: str, printed: dict[str, float], limit: float) -> list[str]:
    """One row: everything as 1 - load / span, the paper's bubble rate."""
    tight, wide = (
        pipesat.Problem.read(BENCH / "problems" / f"{name}-cap{cap}.json") for cap in (1, 2)
    )
    m = tight.routes[0].microbatches
    load = max(m * (stage.F + stage.B + stage.W) for stage in tight.stages)
    one, two = (
        pipesat.solve(problem, objective="span", time_limit=limit) for problem in (tight, wide)
    )
    classic = replace(tight, stages=tuple(replace(s, backward="fused") for s in tight.stages))
    found = rate(load, two.value), least(load, two)
    return [
        name.removeprefix("table5-"),
        *(f"{100 * printed['1F1B']:.2f}", rate(load, span(classic, "1f1b"))),
        *(f"{100 * printed['ZB-1p']:.2f}", rate(load, span(tight, "zb-h1")), least(load, one)),
        *(f"{100 * printed['ZB-2p']:.2f}", rate(load, span(wide, "zb-auto-span")), *found),
    ]


def span(problem: pipesat.Problem, name: str) -> int:
    """Span of a hand-written schedule, timed for it; it must fit into memory."""
    schedule = time_order(problem, schedule_of(problem, name).order, "span")
    if violations := pipesat.check(problem, schedule):
        raise SystemExit(f"{name} on {problem.name}: {violations[0]}")
    return schedule.span


def rate(load: int, span: int | None) -> str:
    """Bubble of the span in per cent."""
    return "-" if span is None else f"{100 * (1 - load / span):.2f}"


def least(load: int, result: pipesat.Result) -> str:
    """The rate that no schedule is below; bold where one attains it."""
    text = rate(load, result.lower_bound)
    return f"**{text}**" if result.status == "optimal" else text


if __name__ == "__main__":
    main()
