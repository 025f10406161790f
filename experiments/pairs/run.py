"""How far is DualPipeV from the optimum at its own memory, 2p + 1 chunks per device?

    python -m experiments.pairs.run [--time-limit S] [--only vee-dsv3-p4]
    python -m experiments.pairs.run --picture [--time-limit S]

Of one problem the best value and bound of all runs stay in results.json: what a run has shown stays
shown. With --picture, the search goes on from schedule.json, keeps there what is better, and draws
docs/pictures/dualpipev.png: DualPipeV and the best schedule known, one above the other.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pipesat
from bench.pages import percent, put, table
from pipesat.compare.schedules import schedule_of
from pipesat.core.claims import at_least, at_most
from pipesat.schedule.schedule_file import read_schedule, write_schedule

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS, KEPT = HERE / "results.json", HERE / "schedule.json"
PICTURE = ROOT / "docs" / "pictures" / "dualpipev.png"
CHUNK = 10_000
"""Memory that one stage holds for one microbatch after its forward."""


class Costs(NamedTuple):
    """Times of one stage, of its pairs, and of a link."""

    F: int
    B: int
    W: int
    pair: int
    comm: int


COSTS = {
    "unit": Costs(4, 4, 4, 11, 0),
    # deepseek-ai/profile-data, train.json: sums of kernel times, and the span of the pair
    "dsv3": Costs(97_391, 111_611, 35_067, 129_012, 500),
}
CASES = [("unit", 2, 8), ("unit", 4, 16), ("unit", 8, 32)]
CASES += [("dsv3", 2, 5), ("dsv3", 4, 10), ("dsv3", 8, 20)]
HEADS = ("problem", "DualPipeV", "found", "bound", "gap", "DualPipeV above the optimum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per problem")
    parser.add_argument("--only", default="", help="a part of names of problems")
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    if options.picture:
        draw(options.time_limit)
        return
    known = {row["problem"]: row for row in json.loads(RESULTS.read_text())}
    for case in CASES:
        problem = vee(*case)
        if options.only in str(problem.name):
            row = solved(problem, options.time_limit)
            known[row["problem"]] = better(known.get(row["problem"], row), row)
    RESULTS.write_text(json.dumps(list(known.values()), indent=1) + "\n")
    loads = [row["load"] for row in known.values()]
    day = max(row["date"] for row in known.values())
    about = f"{options.time_limit:g} s per problem, 2 threads, {day}. Load before it: "
    about += f"{min(loads):g} to {max(loads):g} on {len(os.sched_getaffinity(0))} cores."
    text = f"{about}\n\n{table(HEADS, map(cells, known.values()), right=1)}"
    put(HERE / "README.md", "dualpipev", text)


def vee(costs: str, p: int, m: int) -> pipesat.Problem:
    """Two stages per device in a V, with the memory that DualPipeV needs."""
    c, homes = COSTS[costs], [*range(p), *reversed(range(p))]
    held = {"held_after_F": CHUNK, "held_after_B": CHUNK // 2}
    pairs = [
        {"ops": [f"{a}F", f"{b}BW"], "time": c.pair}
        for a in range(2 * p)
        for b in range(2 * p)
        if homes[a] == homes[b]
    ]
    document: dict[str, Any] = {
        "format": "pipesat.problem/1",
        "name": f"vee-{costs}-p{p}-m{m}",
        "time_unit": "us",
        "microbatches": m,
        "devices": [{"memory": (2 * p + 1) * CHUNK}] * p,
        "stages": [{"device": home, "F": c.F, "B": c.B, "W": c.W} | held for home in homes],
        "comm": {"default": c.comm},
        "overlap": {"pairs": pairs},
    }
    return pipesat.Problem.from_document(document)


def solved(problem: pipesat.Problem, limit: float) -> dict[str, Any]:
    """A search's value and bound beside DualPipeV; where it may run, from the schedule kept."""
    load = round(os.getloadavg()[0], 1)
    same = problem.name == "vee-dsv3-p4-m10"
    starts = [read_schedule(KEPT, kept_problem())] if same else []
    result = pipesat.solve(problem, time_limit=limit, workers=2, schedules=starts)
    row = {"problem": problem.name, "value": result.value, "bound": result.lower_bound}
    row |= {"dualpipev": schedule_of(problem, "dualpipev").makespan, "load": load}
    return row | {"date": str(date.today())}


def kept_problem() -> pipesat.Problem:
    """The benchmark's problem that schedule.json is of."""
    folder = ROOT / "bench" / "beyond" / "problems"
    return pipesat.Problem.read(folder / "pair-dsv3-vee-p4-m10.json")


def better(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Join two rows of one problem."""
    value, bound = min(old["value"], new["value"]), max(old["bound"], new["bound"])
    return new | {"value": value, "bound": bound}


def cells(row: dict[str, Any]) -> list[str]:
    theirs, value, bound = row["dualpipev"], row["value"], row["bound"]
    low, high = theirs / value - 1, theirs / bound - 1
    above = at_least(low) if low == high else f"{at_least(low)} to {at_most(high)}"
    numbers = [f"{number:,}" for number in (theirs, value, bound)]
    return [f"`{row['problem']}`", *numbers, percent((value - bound) / value), above]


def draw(limit: float) -> None:
    """Search on from the schedule kept, and draw it below DualPipeV."""
    from pipesat.draw.figures import file_of
    from pipesat.draw.gantt import gantt_figure

    problem = kept_problem()
    known, theirs = read_schedule(KEPT, problem), schedule_of(problem, "dualpipev")
    ours = pipesat.solve(problem, time_limit=limit, workers=2, schedules=[known]).schedule
    assert ours is not None
    if ours.makespan < known.makespan:
        write_schedule(KEPT, problem, ours)
    title = (
        f"DualPipeV {theirs.makespan / 1e6:.3f} s, below it {ours.makespan / 1e6:.3f} s: "
        f"{percent(1 - ours.makespan / theirs.makespan)} shorter at the same memory\n"
        "DeepSeek-V3's published costs, 4 devices, 10 microbatches, 4 layers per chunk"
    )
    figure = gantt_figure(problem, {"DualPipeV": theirs, "found": ours}, title=title)
    PICTURE.write_bytes(file_of(figure, "png"))


if __name__ == "__main__":
    main()
