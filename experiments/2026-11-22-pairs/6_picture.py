"""DualPipeV and the best schedule known with pairs, one above the other, on DeepSeek's costs.

python experiments/2026-11-22-pairs/6_picture.py [--time-limit S]

Goes on from schedule.json, keeps there what is better, and draws docs/pictures/dualpipev.png.
"""

from __future__ import annotations

from typing import Any

from cases import KEPT, PROBLEM, ROOT, dual, options, share

from pipesat.core.checker import check
from pipesat.core.ops import Item, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, Timed
from pipesat.files.problem_file import parse_problem, read_problem
from pipesat.files.schedule_file import read_schedule, write_schedule
from pipesat.picture.gantt import gantt_png
from pipesat.workflows.solve import solve

PICTURE = ROOT / "docs" / "pictures" / "dualpipev.png"


def main() -> None:
    given, problem = options(__doc__), read_problem(PROBLEM)
    known = [read_schedule(KEPT, problem)] if KEPT.exists() else []
    theirs = dual(problem, "dualpipev")
    result = solve(problem, time_limit=given.limit, workers=given.workers, schedules=known)
    ours = result.schedule
    if not known or ours.makespan < known[0].makespan:
        write_schedule(KEPT, problem, ours)
    saved = share(1 - ours.makespan / theirs.makespan)
    title = (
        f"DualPipeV {theirs.makespan / 1e6:.3f} s, below it {ours.makespan / 1e6:.3f} s: "
        f"{saved} shorter at the same memory\n"
        "DeepSeek-V3's published costs, 4 devices, 10 microbatches, 4 layers per chunk"
    )
    PICTURE.write_bytes(gantt_png(*_both(problem, theirs, ours), title=title))
    print(f"DualPipeV {theirs.makespan:,}, found {ours.makespan:,}, bound {result.lower_bound}")


def _both(problem: Problem, theirs: Schedule, ours: Schedule) -> tuple[Problem, Schedule]:
    """Return one problem with every device and stage twice, and the schedule of both."""
    document, devices = dict(problem.document), len(problem.devices)
    stages, m = len(problem.stages), problem.routes[0].microbatches
    pairs = document["overlap"]["pairs"]
    document |= {
        "devices": [
            {"name": f"{name} {d}", "memory": problem.devices[d].memory}
            for name in ("DualPipeV", "found")
            for d in range(devices)
        ],
        "stages": [
            stage | {"device": stage["device"] + side * devices}
            for side in (0, 1)
            for stage in document["stages"]
        ],
        "routes": [
            {"stages": [s + side * stages for s in range(stages)], "microbatches": m}
            for side in (0, 1)
        ],
        "overlap": {"pairs": [*pairs, *(_entry(entry, stages) for entry in pairs)]},
    }
    del document["microbatches"]
    twice = parse_problem(document, "both")
    moved = tuple(
        tuple(
            Timed(_moved(item, stages), timed.start, timed.end)
            for item, timed in zip(items, row, strict=True)
        )
        for items, row in zip(ours.order, ours.devices, strict=True)
    )
    schedule = Schedule((*theirs.devices, *moved))
    if violations := check(twice, schedule):
        raise SystemExit(f"not a schedule: {violations[0]}")
    return twice, schedule


def _entry(entry: dict[str, Any], by: int) -> dict[str, Any]:
    ops = [op.rstrip("FBW") for op in entry["ops"]]
    kinds = [op.lstrip("0123456789") for op in entry["ops"]]
    named = [f"{int(stage) + by}{kind}" for stage, kind in zip(ops, kinds, strict=True)]
    return {"ops": named, "time": entry["time"]}


def _moved(item: Item, by: int) -> Item:
    ops = [op._replace(stage=op.stage + by) for op in members(item)]
    return ops[0] if len(ops) == 1 else Pair(*ops)


if __name__ == "__main__":
    main()
