"""Plans of the two public layer profiles on 4, 8 and 16 devices, beside today's splits.

    python -m experiments.plan.run [--time-limit S] [--only NAME ...]

Every device has the memory that the fullest of them needs for the even split with 1F1B and for
the cost-balanced split with ZB-H1, so both fit. Fills the table of README.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pipesat
from bench.pages import measured, percent, put, table

HERE = Path(__file__).resolve().parent
MODELS = {"gemma": "Gemma-like, 26 layers", "deepseek": "DeepSeek-like, 61 layers"}
CASES = {f"{model}-p{p}": (model, p, 4 * p) for model in MODELS for p in (4, 8, 16)}
EVEN, BALANCED = "even split", "cost-balanced split"
HEADS = (
    *("layers", "p, m", "even, 1F1B", "balanced, 1F1B", "balanced, ZB-H1", "plan"),
    *("to even, 1F1B", "to balanced, ZB-H1", "by the partition alone", "by the order alone"),
    *("bound over all partitions", "seconds"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=40.0, help="seconds per case")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    rows = [line(*CASES[name], options.time_limit) for name in options.only]
    limit = f"at most {options.time_limit:g} s each, comparison included"
    text, whole = f"{measured(limit)}\n\n{table(HEADS, rows)}", len(rows) == len(CASES)
    put(HERE / "README.md", "table", text, whole=whole)


def line(model: str, p: int, m: int, limit: float) -> list[str]:
    """One plan: the makespans, the gains, and where they come from."""
    layers = HERE.parents[1] / "examples" / f"layers-{model}-like.json"
    free = pipesat.plan(layers, p, m, time_limit=1).document()["comparison"]
    wanted = cells(free, EVEN, "1F1B"), cells(free, BALANCED, "ZB-H1")
    memory = max(peak for cell in wanted for peak in cell["peak_memory"])
    plan = pipesat.plan(layers, p, m, memory=memory, time_limit=limit).document()
    rows, value = plan["comparison"], plan["value"]
    start, balanced, zb = (
        cells(rows, *which)["value"]
        for which in ((EVEN, "1F1B"), (BALANCED, "1F1B"), (BALANCED, "ZB-H1"))
    )
    own = next(row for row in rows if row["name"] not in (EVEN, BALANCED))["schedules"]["1F1B"]
    order = next(row for row in rows if row["name"] == EVEN)["best_order"]
    gap = f"{plan['lower_bound']:,}, gap {percent(plan['gap'])}"
    return [
        *(MODELS[model], f"{p}, {m}"),
        *(f"{number:,}" for number in (start, balanced, zb, value)),
        *(change(start, value), change(zb, value)),
        *(change(start, own["value"]), change(start, order)),
        *("proven optimal" if plan["status"] == "optimal" else gap, f"{plan['wall_s']:.0f}"),
    ]


def cells(rows: list[dict[str, Any]], split: str, schedule: str) -> dict[str, Any]:
    """A hand-written schedule of a split."""
    (found,) = (row["schedules"][schedule] for row in rows if row["name"] == split)
    return dict(found)


def change(before: int, after: int | None) -> str:
    return "-" if after is None else f"{100 * (after / before - 1):+.1f} %"


if __name__ == "__main__":
    main()
