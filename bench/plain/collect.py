"""Bring best_known.json and instances.md up to date from the benchmark's rows.

    python -m bench.plain.collect [--results DIR] [--from-scratch]

What is known already stays, as long as its problem is the same and its backing still holds: every
schedule is read and checked again, every hand-written one made again, every formula calculated
again. Rows of the benchmark add to it if they are of the problem as it is now, and so do the
schedules that its solves left beside them. Exit status: 1 if a value is below a bound.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import lzma
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pipesat
from bench.plain import table
from bench.plain.library import HERE, KINDS, OBJECTIVES, Contradiction, Library, Record
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.compare.schedules import schedule_of
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.schedule.schedule_file import read_schedule
from pipesat.schedule.timing import time_order

OWN_FILES = ("solve", "ablate", "others")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--results", action="append", type=Path, metavar="DIR", help="folder of rows; repeatable")
    add("--from-scratch", action="store_true", help="forget all figures that only rows vouch for")
    add("--folder", type=Path, default=HERE, help="of the library")
    options = parser.parse_args()
    library = Library(options.folder)
    try:
        confirm(library, options.from_scratch)
        for folder in options.results or [HERE.parent / "results"]:
            add_rows(library, folder)
            add_schedules(library, folder.parent / "schedules")
        for name in library.names:
            for objective in OBJECTIVES:
                if library.record(name, objective, "value"):
                    library.add_formula(name, objective, today())
    except Contradiction as error:
        print(f"collect: fault: {error}", file=sys.stderr)
        return 1
    for line in library.dropped:
        print(line)
    library.save()
    print(table.write(library))
    return 0


def confirm(library: Library, from_scratch: bool) -> None:
    """Drop every record whose backing does not hold any more."""
    for name in library.names:
        for objective in OBJECTIVES:
            for kind in KINDS:
                record = library.record(name, objective, kind)
                if record is None:
                    continue
                why = "collected anew" if from_scratch and not record.checkable else ""
                why = why or wrong_with(library, name, objective, record)
                if why:
                    library.drop(name, objective, kind, why)


def wrong_with(library: Library, name: str, objective: Objective, record: Record) -> str:
    """Check a record's backing; returns what is wrong with it, or ''."""
    if "formula" in record.backed_by:
        amount = closed_form_bound(library.problem(name), objective).value
        return "" if amount == record.amount else f"the formula gives {amount}"
    if "rerun" in record.backed_by:
        return ""
    try:
        schedule = backing_schedule(library, name, objective, record)
    except (pipesat.PipesatError, OSError, lzma.LZMAError) as error:
        return str(error)
    if violations := pipesat.check(library.problem(name), schedule):
        return str(violations[0])
    amount = schedule.value(objective)
    return "" if amount == record.amount else f"the schedule has {amount}"


def backing_schedule(library: Library, name: str, objective: Objective, record: Record) -> Schedule:
    """The schedule that backs a value, read or made again."""
    problem = library.problem(name)
    if "baseline" in record.backed_by:
        return timed_baseline(library, record.backed_by["baseline"], name, objective)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "schedule.json"
        copy.write_bytes(
            lzma.decompress((library.folder / record.backed_by["schedule"]).read_bytes())
        )
        return read_schedule(copy, problem)


def timed_baseline(library: Library, baseline: str, name: str, objective: Objective) -> Schedule:
    """A hand-written schedule, timed for the objective."""
    problem = library.problem(name)
    return time_order(problem, schedule_of(problem, baseline).order, objective)


def add_rows(library: Library, folder: Path) -> None:
    """Offer value and bound of every row of pipesat's that is of a problem as it is now."""
    rows = [row for row in read_rows(folder) if row["problem"] in library.names]
    for row in sorted(rows, key=lambda row: row["date"]):
        own = library.problem(row["problem"]).sha256
        if row.get("problem_sha256", own) != own:
            why = "a row is not of the problem as it is now"
            library.dropped.append(f"{row['problem']}: {why}")
            continue
        if row.get("value") is not None:
            offer_value(library, row)
        if row.get("bound") is not None:
            library.offer(row["problem"], row["objective"], "bound", rerun(row))


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows that pipesat made, with all or some of its parts; broken lines are left out."""
    for name in OWN_FILES:
        path = folder / f"{name}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row.get("status") in ("optimal", "feasible") and row.get("versions"):
                yield row


def rerun(row: dict[str, Any]) -> Record:
    """A bound that only a row vouches for."""
    keys = ("limit", "workers", "seed", "commit", "machine")
    by = f"pipesat {row['versions']['pipesat']}: {row['bound_source']}"
    return Record(row["bound"], by, row["date"], {"rerun": {key: row[key] for key in keys}})


def offer_value(library: Library, row: dict[str, Any]) -> None:
    """Offer the hand-written schedule that a row names.

    Making the schedule again takes seconds where the problem is large, so that is left out where
    there is something better already.
    """
    name, objective = row["problem"], row["objective"]
    best = library.record(name, objective, "value")
    baseline, amount = row["baseline"] or ("", None)
    if amount is not None and (best is None or amount < best.amount):
        record = Record(amount, baseline, row["date"], {"baseline": baseline})
        if why := wrong_with(library, name, objective, record):
            library.dropped.append(f"{name}: {baseline} does not back its row: {why}")
        else:
            library.offer(name, objective, "value", record)


def add_schedules(library: Library, folder: Path) -> None:
    """Offer what the benchmark's solves wrote, ``<problem>.<objective>.<value>.json``."""
    for path in sorted(folder.glob("*.json")):
        name, objective, value = path.stem.rsplit(".", 2)
        if name not in library.names or objective not in OBJECTIVES:
            continue
        best = library.record(name, objective, "value")
        if best is None or int(value) < best.amount:
            schedule = read_schedule(path, library.problem(name))
            if violations := pipesat.check(library.problem(name), schedule):
                library.dropped.append(f"{path.name}: {violations[0]}")
                continue
            by = f"pipesat {importlib.metadata.version('pipesat')}"
            print("\n".join(library.offer_schedule(name, schedule, by, today(), [objective])))


def today() -> str:
    """The date, as it stands in records."""
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
