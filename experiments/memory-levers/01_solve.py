"""Solve every case; each starts from the schedules of those whose schedules it may use.

    python 01_solve.py [--scale 1] [--work DIR] [--again]

One thread and 144 cases of 4, 6 or 17 seconds for 4, 8 or 16 devices: 20 minutes, times --scale.
What DIR has is not solved again (default: a folder of this name under the system's temporary one),
but with --again the cases of which results.json knows something shorter: from what DIR has.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from cases import RESULTS, Case, cases, implies

import pipesat
from pipesat.core.metrics import mode_counts
from pipesat.core.ops import Item, Op
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.files.schedule_file import read_schedule, write_schedule

SECONDS = {4: 4, 8: 6, 16: 17}


def moved(schedule: Schedule, old: Problem, new: Problem) -> Schedule:
    """Time a schedule of another case anew; modes are known by their names."""
    names = [mode.name for mode in new.stages[0].modes]

    def renumbered(item: Item) -> Item:
        assert isinstance(item, Op)
        if not item.mode:
            return item
        name = old.stages[item.stage].modes[item.mode - 1].name
        return item._replace(mode=1 + names.index(name))

    order = tuple(tuple(map(renumbered, row)) for row in schedule.order)
    return time_order(new, order, source="a case with less freedom")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the seconds per case")
    work = Path(tempfile.gettempdir()) / Path(__file__).resolve().parent.name
    parser.add_argument("--work", type=Path, default=work, help="schedules so far")
    parser.add_argument("--again", action="store_true", help="those that have been shorter")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    before: list[Case] = []
    shortest = json.loads(RESULTS.read_text())["cases"] if options.again else {}
    for case in cases():
        result, schedule = (options.work / f"{case.name}{end}" for end in (".json", ".schedule"))
        problem = case.problem()
        row = json.loads(result.read_text()) if result.exists() else None
        again = case.name in shortest and row and row["value"] > shortest[case.name]["value"]
        if row is None or again:
            before += [case] if again else []
            starts = [
                moved(read_schedule(options.work / f"{one.name}.schedule", old), old, problem)
                for one in before
                if implies(one, case)
                for old in [one.problem()]
            ]
            found = pipesat.solve(
                problem, time_limit=options.scale * SECONDS[case.p], workers=1, schedules=starts
            )
            assert found.schedule is not None
            assert found.lower_bound is not None
            write_schedule(schedule, problem, found.schedule)
            bound = max(found.lower_bound, row["bound"] if row else 0)
            row = {"value": found.value, "bound": bound, "wall_s": round(found.wall_s, 2)}
            result.write_text(json.dumps(row | {"modes": mode_counts(problem, found.schedule)}))
            print(case.name, result.read_text(), flush=True)
        before += [case] if case not in before else []


if __name__ == "__main__":
    main()
