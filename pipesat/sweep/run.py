"""A whole sweep: what has no row yet runs, and every end is a row."""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipesat.files.atomic import prepare_folder, write_files
from pipesat.sweep.cases import Case, document_of
from pipesat.sweep.pool import Pool
from pipesat.sweep.rows import FORMAT, RowFile, SweepRow
from pipesat.sweep.run_case import Answer, Job, answer
from pipesat.sweep.spec import Spec

SCHEDULES: Final = "schedules"
_KILL_AFTER: Final = (2.0, 30.0)  # times the time limit, plus seconds, where the file does not say
_REFUSED: Final[Answer] = {"wall_s": 0.0, "peak_mib": None, "host": None}


def run_sweep(
    spec: Spec,
    cases: Sequence[Case],
    rows: RowFile,
    pool: Pool,
    *,
    memory_limit: int | None = None,
    keep_schedules: bool = False,
    stop: threading.Event | None = None,
    listener: Callable[[SweepRow], None] = lambda _: None,
) -> None:
    """Give every case that has none a row; ``stop`` ends it early with the rows there are.

    Parameters
    ----------
    memory_limit
        Bytes for one case, where the sweep file does not say.
    keep_schedules
        Write ``schedules/KEY/problem.json`` and ``schedule.json`` for every case that runs.
    listener
        Called with every new row.

    Raises
    ------
    BadInput
        If a row cannot be written.
    RunFailed
        If the processes for cases cannot be started.
    """
    stop = stop or threading.Event()
    by_key = {case.key: case for case in cases}
    todo = [case for case in cases if case.key not in rows.by_key]

    def add(case: Case, found: Answer) -> None:
        schedule = found.pop("schedule", None)
        if schedule is not None:
            found["result"]["schedule"] = _write_schedule(spec, case, rows.path.parent, schedule)
        row = _row(case, found)
        rows.append(row)
        listener(row)

    def jobs() -> Iterator[tuple[str, Job]]:
        for case in todo:
            if not case.refused:
                yield case.key, _job(spec, case, memory_limit, keep_schedules)

    for case in todo:
        if case.refused and not stop.is_set():
            add(case, answer("refused", case.refused) | _REFUSED)
    with closing(pool(jobs(), stop)) as answers:
        for key, found in answers:
            add(by_key[key], {"host": platform.node()} | found)


def _job(spec: Spec, case: Case, memory_limit: int | None, keep_schedules: bool) -> Job:
    factor, more = _KILL_AFTER
    return {
        "problem": document_of(spec, case),
        "solve": dict(case.solve),
        "kill_after": spec.kill_after or factor * case.solve["time_limit"] + more,
        "memory_limit": spec.memory_limit or memory_limit,
        "schedule": keep_schedules,
    }


def _row(case: Case, found: Answer) -> SweepRow:
    return {
        "format": FORMAT,
        "key": case.key,
        "status": found["status"],
        "why": found["why"] or None,
        "case": dict(case.axes) | {name: case.solve[name] for name in ("workers", "deterministic")},
        "problem_sha256": case.problem_sha256,
        "ops": case.ops or None,
        "result": found["result"],
        "wall_s": found["wall_s"],
        "peak_mib": found["peak_mib"],
        "host": found["host"],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write_schedule(spec: Spec, case: Case, folder: Path, schedule: str) -> str:
    """Write problem and schedule, which are there before the row is; return the path for it."""
    home = folder / SCHEDULES / case.key[:16]
    prepare_folder(home)
    problem = json.dumps(document_of(spec, case), indent=1) + "\n"
    write_files(home, {"problem.json": problem.encode(), "schedule.json": schedule.encode()})
    return f"{SCHEDULES}/{home.name}/schedule.json"
