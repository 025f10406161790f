"""The nine problems with memory modes: what the search finds, beside what is simpler.

    python -m experiments.modes-search.run [--seconds 60] [--rivals 8] [--only NAME ...]

Rivals: the same problem without modes, solved; all microbatches in one mode, under every
hand-written schedule and in orders of plain problems (``in_one_mode``); one mode for all
microbatches of a stage, solved; PipeOffload's PO-H, the longer-lived half of the chunks offloaded,
under every hand-written schedule. Writes results.json and the table of README.md; 0 seconds leave
out what would be solved.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pipesat
from bench.pages import put, table
from pipesat.compare.schedules import schedule_of
from pipesat.core.errors import Deadlock
from pipesat.problem.ops import Item, Op
from pipesat.schedule.schedule import Order
from pipesat.schedule.timing import time_order

HERE = Path(__file__).resolve().parent
PROBLEMS = HERE.parents[1] / "bench" / "beyond" / "problems"
RESULTS = HERE / "results.json"
KINDS = ("keep", "all recompute", "all offload", "per stage", "PO-H")
Document = dict[str, Any]
Modes = dict[tuple[int, int], int]
"""The number of the mode of each (stage, microbatch); others are kept."""


def found(document: Document, seconds: float) -> pipesat.Result:
    problem = pipesat.Problem.from_document(document)
    return pipesat.solve(problem, time_limit=seconds, workers=2)


def without_modes(document: Document) -> Document:
    """The document in which everything is kept."""
    lists = {
        key: [{k: v for k, v in entry.items() if k != drop} for entry in document[key]]
        for key, drop in (("stages", "modes"), ("devices", "copy_channels"))
    }
    return {k: v for k, v in document.items() if k != "mode_choice"} | lists


def with_amounts(document: Document, number: int) -> Iterator[Document]:
    """Documents in which a mode's amounts are the stages' own; copies take no time.

    One states what is held in the backward. The others are plain and have less memory instead: what
    one backward takes at most, or one or two activations, for copies that are under way.
    """
    plain = without_modes(document)
    stages, in_backward, excess, most = [], [], 0, 0
    for entry, with_modes in zip(plain["stages"], document["stages"], strict=True):
        mode = with_modes["modes"][number]
        own = entry | {k: v for k, v in mode.items() if k not in ("name", "offload")}
        peak = max(own.pop("held_in_backward", 0), own["held_after_F"])
        if offload := mode.get("offload"):
            most = max(most, own["held_after_F"])
            own["held_after_F"] = offload["held"]
        stages.append(own)
        in_backward.append({"held_in_backward": peak})
        excess = max(excess, peak - own["held_after_F"])
    yield plain | {"stages": [a | b for a, b in zip(stages, in_backward, strict=True)]}
    for spare in (most, 2 * most) if most else (excess,):
        devices = [device | {"memory": device["memory"] - spare} for device in plain["devices"]]
        yield plain | {"stages": stages, "devices": devices}


def guides(problem: pipesat.Problem) -> Iterator[Order]:
    """Every hand-written order that exists here, all kept, whether it fits or not."""
    for name in pipesat.baselines():
        try:
            yield schedule_of(problem, name).order
        except pipesat.NotApplicable:
            continue


def within(problem: pipesat.Problem, order: Order, modes: Modes) -> int | None:
    """Makespan of an order in given modes, if it fits."""

    def put_into(item: Item) -> Item:
        assert isinstance(item, Op)
        return item._replace(mode=modes.get((item.stage, item.microbatch), 0))

    try:
        timed = time_order(problem, tuple(tuple(map(put_into, row)) for row in order))
    except Deadlock:
        return None
    return None if pipesat.check(problem, timed) else timed.makespan


def in_one_mode(document: Document, number: int, seconds: float) -> Iterator[int | None]:
    """Makespans with every microbatch in one mode."""
    problem = pipesat.Problem.from_document(document)
    stages, m = range(len(document["stages"])), document["microbatches"]
    modes = {(stage, k): number + 1 for stage in stages for k in range(m)}
    for order in guides(problem):
        yield within(problem, order, modes)
    for plain in with_amounts(document, number) if seconds else ():
        schedule = found(plain, seconds).schedule
        if schedule is not None:
            yield within(problem, schedule.order, modes)


def po_h(document: Document, number: int) -> Iterator[int | None]:
    """Makespans with the half that stays longest offloaded, under every hand-written schedule.

    Of a device's chunks that is the first half, of a single chunk every second microbatch.
    """
    homes = [entry["device"] for entry in document["stages"]]
    modes: Modes = {}
    for stage, home in enumerate(homes):
        place, chunks = homes[:stage].count(home), homes.count(home)
        for m in range(document["microbatches"]):
            if m % 2 if chunks == 1 else place < chunks // 2:
                modes[stage, m] = number + 1
    problem = pipesat.Problem.from_document(document)
    return (within(problem, order, modes) for order in guides(problem))


def rivals(document: Document, seconds: float) -> dict[str, Document]:
    """Makespan of every rival, ``None`` where nothing fits, and which are proven optimal."""

    def solved(other: Document) -> Document:
        result = found(other, seconds)
        return {"value": result.value, "optimal": result.status == "optimal"}

    made = {"keep": solved(without_modes(document))} if seconds else {}
    names = [mode["name"] for mode in document["stages"][0]["modes"]]
    for number, name in enumerate(names):
        made[f"all {name}"] = {"value": least(in_one_mode(document, number, seconds))}
    if document.get("mode_choice", "microbatch") == "microbatch":  # else it is the problem itself
        if seconds:
            made["per stage"] = solved(document | {"mode_choice": "stage"})
        if "offload" in names:
            made["PO-H"] = {"value": least(po_h(document, names.index("offload")))}
    return made


def least(values: Iterable[int | None]) -> int | None:
    """The least of those known."""
    return min((value for value in values if value is not None), default=None)


def cell(rival: Document | None, value: int) -> str:
    if rival is None:
        return "-"
    if rival["value"] is None:
        return "none fits"
    proven = ", optimal" if rival.get("optimal") else ""
    return f"{rival['value']:,}{proven}" + (" **shorter**" if rival["value"] < value else "")


def page(results: dict[str, Document]) -> str:
    """The table, and how many rivals are shorter."""
    rows, gaps, shorter = [], [], 0
    for name, row in results.items():
        value, bound = row["value"], row["bound"]
        gaps.append(1 - bound / value)
        cells = [cell(row["rivals"].get(kind), value) for kind in KINDS]
        shorter += any("shorter" in text for text in cells)
        gap = "optimal" if value == bound else f"{100 * gaps[-1]:.1f} %"
        rows.append([f"`{name}`", *cells, f"{value:,}", f"{bound:,}", gap])
    text = table(("problem", *KINDS, "search", "bound", "gap"), rows, right=1)
    text += f"\n\nMean gap {100 * fmean(gaps):.1f} %; a rival is shorter on {shorter} "
    return text + f"of {len(gaps)} problems."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each problem")
    parser.add_argument("--rivals", type=float, default=8.0, help="of each rival that is solved")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names; none: the table")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text())
    for path in sorted(PROBLEMS.glob("mode-*.json")):
        if any(part in path.stem for part in options.only):
            document, row = json.loads(path.read_text()), results.setdefault(path.stem, {})
            if options.seconds:
                result = found(document, options.seconds)
                row |= {"value": result.value, "bound": result.lower_bound}
            row["rivals"] = row.get("rivals", {}) | rivals(document, options.rivals)
            print(path.stem, row, flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    put(HERE / "README.md", "rivals", page(results))


if __name__ == "__main__":
    main()
