"""Record a schedule that is better than the best one known.

    python -m bench.plain.contribute PROBLEM SCHEDULE --by NAME [--date YYYY-MM-DD]

PROBLEM is one of problems/, SCHEDULE a schedule file of it (`pipesat check PROBLEM SCHEDULE` says
whether it is valid). Its order is valued for the makespan and for the span. Exit status: 0 it was
recorded, or is valid and not better; 1 it breaks a rule, or is below a proven bound; 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pipesat
from bench.plain import table
from bench.plain.library import HERE, OBJECTIVES, Contradiction, Library
from pipesat.problem.problem_file import read_problem
from pipesat.schedule.schedule_file import read_schedule


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problem", type=Path, help="problem file of the library")
    parser.add_argument("schedule", type=Path, help="schedule file")
    parser.add_argument("--by", required=True, help="who found it, as it shall stand in the table")
    parser.add_argument(
        "--date", type=date.fromisoformat, default=datetime.now(UTC).date(), help="when (today)"
    )
    parser.add_argument("--folder", type=Path, default=HERE, help="of the library")
    options = parser.parse_args()
    by = " ".join(options.by.split())
    if not by or len(by) > 80 or not by.isprintable() or set(by) & set("|<>[]`"):
        parser.error("--by: expected a name of at most 80 characters, without | < > [ ] `")
    try:
        return contribute(options, by)
    except pipesat.BadInput as error:
        print(f"contribute: error: {error}", file=sys.stderr)
        return 2
    except Contradiction as error:
        print(f"contribute: fault: {error}", file=sys.stderr)
        return 1


def contribute(options: argparse.Namespace, by: str) -> int:
    """Check, compare and record; returns the exit status."""
    library = Library(options.folder)
    problem = read_problem(options.problem)
    name = library.name_of(problem)
    if name is None:
        raise pipesat.BadInput("this problem is not in the library", source=str(options.problem))
    schedule = read_schedule(options.schedule, problem)
    if violations := pipesat.check(problem, schedule):
        for violation in violations[:20]:
            print(violation, file=sys.stderr)
        print(f"contribute: not valid: {len(violations)} violations", file=sys.stderr)
        return 1
    recorded = library.offer_schedule(name, schedule, by, options.date.isoformat())
    if not recorded:
        for objective in OBJECTIVES:
            best = library.record(name, objective, "value")
            if best is not None:
                print(f"{name}: not better than {objective} {best.amount} by {best.by}")
        return 0
    library.save()
    table.write(library)
    print("\n".join(recorded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
