"""Plans of the two public layer profiles on 4, 8 and 16 devices, beside today's splits.

    python experiments/plan/run.py [--time-limit S] [--only NAME ...]

Every device has the memory that the fullest of them needs for the even split with 1F1B and for
the cost-balanced split with ZB-H1, so both fit. Writes results.json and a picture beside this
script, and the table into README.md here, between its markers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from pipesat.choose.candidates import Space
from pipesat.choose.comparison import SplitRow
from pipesat.choose.phases import run_plan
from pipesat.choose.picture import plan_pictures
from pipesat.choose.plan import Plan
from pipesat.choose.search import Findings, Search
from pipesat.choose.splits import balanced_partition, even_partition
from pipesat.core.metrics import peak_memory
from pipesat.core.solving import Deadline
from pipesat.files.atomic import write_files
from pipesat.layers.file import read_layers
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.stages import problem_of_split
from pipesat.workflows.studies import solver_of, versions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODELS = {"gemma": "Gemma-like, 26 layers", "deepseek": "DeepSeek-like, 61 layers"}
CASES = {f"{model}-p{p}": (model, p, 4 * p) for model in MODELS for p in (4, 8, 16)}
PICTURE = "deepseek-p16"
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds per case")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    rows, files = [], {}
    for name in options.only:
        model, p, m = CASES[name]
        layers = read_layers(ROOT / "examples" / f"layers-{model}-like.json")
        cap = common_memory(layers, p, m)
        shape = Pipeline(devices=p, microbatches=m, memory=cap)
        print(f"{name}: memory {cap}, {options.time_limit:g} s at most", file=sys.stderr)
        plan = planned(layers, shape, options.time_limit)
        row = figures(name, plan, cap)
        print(json.dumps(row), flush=True)
        rows.append(row | {"plan": plan.document()})
        if name == PICTURE:
            drawn = plan_pictures(plan.space.layers, plan.chosen, plan.standing)
            files["plan.png"] = drawn["plan.png"]
    about = {
        "date": str(date.today()),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "time_limit": options.time_limit,
        "versions": versions(),
    }
    results = json.dumps({"about": about, "cases": rows}, indent=1) + "\n"
    write_files(HERE, files | {"results.json": results.encode()})
    between_markers(HERE / "README.md", table(rows, about))


def common_memory(layers: Layers, p: int, m: int) -> int:
    """What even split with 1F1B and balanced one with ZB-H1 need on their fullest device."""
    shape = Pipeline(devices=p, microbatches=m)
    peaks = []
    for split, name in ((even_partition, "1f1b"), (balanced_partition, "zb-h1")):
        problem = problem_of_split(layers, split(layers, shape), shape)
        peaks += peak_memory(problem, problem.schedule(name))
    return max(peaks)


def planned(layers: Layers, shape: Pipeline, time_limit: float) -> Plan:
    solver = solver_of("makespan", None, 0)
    known = Findings(Space.of(layers, shapes=[shape]))
    search = Search(known, solver, Deadline(time_limit))
    return run_plan(search, compare=True, versions=versions())


def _fitting(row: SplitRow, name: str) -> int | None:
    cell = row.cells[name]
    return cell.value if cell.fits else None


def figures(name: str, plan: Plan, cap: int) -> dict[str, Any]:
    even, balanced, own = plan.rows
    return {
        "case": name,
        "memory": cap,
        "even, 1F1B": _fitting(even, "1F1B"),
        "even, best order": even.best,
        "balanced, 1F1B": _fitting(balanced, "1F1B"),
        "balanced, ZB-H1": _fitting(balanced, "ZB-H1"),
        "plan's split, 1F1B": own.cells["1F1B"].value,
        "value": plan.value,
        "bound": None if plan.bound is None else plan.bound.value,
        "status": plan.status,
        "seconds": round(plan.seconds, 1),
    }


def table(rows: list[dict[str, Any]], about: dict[str, Any]) -> str:
    """Markdown: the makespans, the gains, and where they come from."""
    heads = [
        "layers",
        "p, m",
        "even, 1F1B",
        "balanced, 1F1B",
        "balanced, ZB-H1",
        "plan",
        "to even, 1F1B",
        "to balanced, ZB-H1",
        "by the partition alone",
        "by the order alone",
        "bound over all partitions",
        "seconds",
    ]
    lines = [
        f"{about['date']}, {about['cores']} cores, Python {about['python']}, at most "
        f"{about['time_limit']:g} s each, comparison included:",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for row in rows:
        model, p, m = CASES[row["case"]]
        start = row["even, 1F1B"]
        bound = "proven optimal" if row["status"] == "optimal" else number(row["bound"])
        if row["status"] != "optimal" and row["bound"] is not None:
            bound += f", gap {100 * (1 - row['bound'] / row['value']):.2f} %"
        lines.append(
            f"| {MODELS[model]} | {p}, {m} | {number(start)} | {number(row['balanced, 1F1B'])} | "
            f"{number(row['balanced, ZB-H1'])} | {number(row['value'])} | "
            f"{change(start, row['value'])} | {change(row['balanced, ZB-H1'], row['value'])} | "
            f"""{change(start, row["plan's split, 1F1B"])} | """
            f"{change(start, row['even, best order'])} | {bound} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines)


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def change(before: int | None, after: int | None) -> str:
    if not before or after is None:
        return "-"
    return f"{100 * (after / before - 1):+.1f} %"


def between_markers(page: Path, text: str) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    with tempfile.NamedTemporaryFile("w", dir=page.parent, delete=False) as file:
        file.write(f"{before}{BEGIN}\n{text}\n{END}{after}")
    os.chmod(file.name, 0o644)
    os.replace(file.name, page)


if __name__ == "__main__":
    main()
