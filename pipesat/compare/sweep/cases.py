"""A sweep from beginning to end: its cases, what runs them, and the rows there are."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pipesat.compare.sweep.row_file import (
    FORMAT,
    NAME,
    SweepRow,
    opened,
    read_rows,
    require_agreement,
    standing_of,
)
from pipesat.compare.sweep.runs import (
    REFUTED,
    Answer,
    Place,
    SweepJob,
    answer,
    ray_cluster,
    this_machine,
)
from pipesat.compare.sweep.spec import Case, Spec, cases_of, problem_of, read_spec
from pipesat.core.arguments import public
from pipesat.core.atomic import write_files
from pipesat.core.errors import Contradiction, require
from pipesat.core.folder import json_file
from pipesat.core.settings import Seconds, Within
from pipesat.core.showing import Displayed, Facts, Table, table_of
from pipesat.core.usable_cores import usable_cores
from pipesat.schedule.solving import EitherStop

MOST_CASES: Final = 5000
_START: Final = 1.0  # seconds around a solve, for the estimate
Processes: TypeAlias = Annotated[int, Within(1, 1024)]
Cases: TypeAlias = Annotated[int, Within(1, 10**9)]
Listener: TypeAlias = Callable[[str], None]


def _run(
    spec: Spec,
    todo: Sequence[Case],
    append: Callable[[SweepRow], None],
    place: Place,
    over: threading.Event,
    listener: Listener,
    schedules: Path | None,
) -> None:
    """Give cases their rows; ``over`` ends it early with the rows there are, and is set at last.

    ``schedules`` is the folder for problems and schedules, if they are kept.
    """

    def run(case: Case) -> Answer:  # problems of thousands of cases are made as they run
        if case.refused:
            return answer("refused", case.refused)
        return place.run(SweepJob(problem_of(spec, case), case.solve, schedules is not None))

    with ThreadPoolExecutor(place.at_once) as threads:
        running = {threads.submit(run, case): case for case in todo}
        try:
            for number, future in enumerate(as_completed(running), 1):
                if over.is_set():
                    return
                case, found = running[future], future.result()
                schedule = found.pop("schedule")
                if schedule and schedules:
                    found["result"]["schedule"] = _write(spec, case, schedules, schedule)
                row = row_of(case, found)
                append(row)
                axes = " ".join(f"{k}={v}" for k, v in row["case"].items() if v is not None)
                said = (row["result"] or {}).get("value") or row["why"] or ""
                listener(f"[{number}/{len(todo)}] {axes}: {row['status']} {said}".rstrip())
        finally:
            over.set()
            threads.shutdown(cancel_futures=True)


def row_of(case: Case, found: Answer) -> SweepRow:
    """Return the row of a case of which this came."""
    asked = {name: case.solve[name] for name in ("workers", "deterministic")}
    return {
        "format": FORMAT,
        "key": case.key,
        "status": found["status"],
        "why": found["why"],
        "case": {**case.axes, **asked},
        "problem_sha256": case.problem_sha256,
        "ops": case.ops or None,
        "time_unit": case.time_unit,
        **{name: found[name] for name in ("result", "wall_s", "host")},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write(spec: Spec, case: Case, folder: Path, schedule: str) -> str:
    """Write problem and schedule, which are there before the row is; return the path for it."""
    home = f"schedules/{case.key[:16]}"
    problem = json_file(problem_of(spec, case).document)
    files = {"problem.json": problem, "schedule.json": schedule.encode()}
    write_files(folder, {f"{home}/{name}": data for name, data in files.items()})
    return f"{home}/schedule.json"


MOST_LINES: Final = 40  # of the table
_SHOWN: Final = (
    *("status", "value", "lower_bound", "gap"),
    *("baseline_value", "baseline", "wall_s", "why"),
)
_RESULT: Final = (
    *("value", "makespan", "span", "lower_bound", "lower_bound_source"),
    *("gap", "seed", "workers"),
)


def _plan(cases: int, todo: Sequence[Case], at_once: int) -> str:
    seconds = sum(case.solve["time_limit"] + _START for case in todo if not case.refused)
    return (
        f"pipesat: {len(todo)} of {cases} cases to run, {at_once} at a time, "
        f"in {int(-(-seconds // (60 * at_once)))} min at most"
    )


@dataclass(frozen=True, repr=False, slots=True)
class Sweep(Displayed):
    """The cases of a sweep, and the rows there are; ``path`` is the file that has them."""

    cases: tuple[Case, ...]
    rows: tuple[SweepRow, ...]
    path: Path

    @property
    def refuted(self) -> list[str]:
        """Proofs that a checked schedule has refuted: faults of pipesat."""
        whys = (row["why"] or "" for row in self.rows)
        return [why for why in whys if why.startswith(REFUTED)]

    def facts(self) -> Facts:
        """Return how the cases ended."""
        ends = ", ".join(f"{count} {end}" for end, count in self._ends().items())
        left = len(self.cases) - len(self.rows)
        missing = f", {left} to run" if left > 0 else ""
        cases = f"{len(self.cases) or len(self.rows)}{missing}"
        return [("cases", cases), ("ended", ends), ("rows", str(self.path))]

    def _ends(self) -> dict[str, int]:
        return dict(sorted(Counter(str(row["status"]) for row in self.rows).items()))

    def tables(self) -> Iterator[Table]:
        """Yield the first rows, by the axes that differ."""
        rows = self.rows[:MOST_LINES]
        axes = {
            name: {str(row["case"].get(name)) for row in rows}
            for row in rows[:1]
            for name in row["case"]
        }
        units = {row.get("time_unit") or "" for row in rows}  # older rows have none
        shown = [*_SHOWN, "time_unit"] if len(units) > 1 else _SHOWN
        names = [*(name for name, values in axes.items() if len(values) > 1), *shown]
        records = [{name: record.get(name) for name in names} for record in map(_record, rows)]
        left = len(self.rows) - len(records)
        notes = [f"times in {unit}" for unit in units if unit and len(units) == 1]
        notes += [f"and {left} more rows, which --csv has"] if left else []
        if records:
            yield table_of(records, notes=notes)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per case that has one: its axes, then its result."""
        records = [_record(row) for row in self.rows]
        names = dict.fromkeys(name for record in records for name in record)
        return [{name: record.get(name) for name in names} for record in records]

    def case_records(self) -> list[dict[str, Any]]:
        """Return a row per case: what it is, and how it ended, ``None`` if it has not run."""
        known = {row["key"]: row["status"] for row in self.rows}
        return [
            {
                "key": case.key,
                "case": dict(case.axes),
                "ops": case.ops or None,
                "refused": case.refused or None,
                "status": known.get(case.key),
            }
            for case in self.cases
        ]

    def document(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "cases": len(self.cases),
            "missing": len(self.cases) - len(self.rows),
            "status": self._ends(),
            "file": str(self.path),
            "rows": list(self.rows),
        }


def _record(row: SweepRow) -> dict[str, Any]:
    """A row without lists in it: its axes, then its result."""
    result = row["result"] or {}
    bubble, baseline = result.get("bubble") or {}, result.get("baseline") or {}
    axes = {name: _text(value) for name, value in row["case"].items()}
    figures = {name: result.get(name) for name in _RESULT if name not in axes}
    return {
        "key": row["key"],
        "status": row["status"],
        **axes,
        **figures,
        "gap": standing_of(row).gap,
        "bubble_makespan": bubble.get("makespan"),
        "bubble_span": bubble.get("span"),
        "largest_peak_memory": max(result.get("peak_memory") or [], default=None),
        "baseline": baseline.get("name"),
        "baseline_value": baseline.get("value"),
        "time_unit": row.get("time_unit"),
        "wall_s": row["wall_s"],
        "why": row["why"],
    }


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return ",".join(str(_text(one)) for one in value)
    if isinstance(value, float):
        return f"{value:g}"
    return None if value is None else str(value)


@public
def sweep(
    spec: Spec | str | Path,
    folder: str | Path | None = None,
    *,
    processes: Processes | None = None,
    ray: str | None = None,
    time_limit: Seconds | None = None,
    max_cases: Cases = MOST_CASES,
    retry: bool = False,
    schedules: bool = False,
    dry_run: bool = False,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Sweep:
    """Solve a grid of problems, each a row in ``folder/rows.jsonl``.

    Started again, it goes on where it was ended. A case that fails is a row that says so. Cases run
    in processes of their own.

    Parameters
    ----------
    spec
        The sweep file (TOML). Or what was read from it.
    folder
        Folder of the rows, where a case that has a row is not run again; ``None``: named after the
        sweep file, in the current folder.
    processes
        Cases at a time; ``None``: cores / workers.
    ray
        Run on the Ray cluster with its head at HOST:PORT, or this machine's with auto (ray start
        --head starts one); ``None``: this machine alone.
    time_limit
        Seconds per case; ``None``: what the sweep file says.
    max_cases
        Refuse a larger sweep.
    retry
        Run the cases again that failed.
    schedules
        Keep the problem and the schedule of every case.
    dry_run
        List the cases and run none.
    listener
        Hears a line when the cases begin, and one of every row.
    stop
        Ends the sweep when set, with the rows there are.

    Raises
    ------
    BadInput
        If the file is wrong, there are too many cases, or rows cannot be written.
    Contradiction
        If rows do not agree with each other.
    """
    require(
        not (dry_run and (retry or schedules)),
        "`dry_run` runs no case and writes nothing",
        where="retry" if retry else "schedules",
        value=True,
    )
    require(
        ray is None or processes is None,
        "Ray decides how many cases run at a time",
        where="processes",
    )
    source = "" if isinstance(spec, Spec) else str(spec)
    data = spec if isinstance(spec, Spec) else read_spec(Path(spec))
    if time_limit is not None:
        grids = ({**grid, "time_limit": [time_limit]} for grid in data.grids)
        data = replace(data, grids=tuple(grids))
    require(
        data.most_cases <= max_cases,
        f"up to {data.most_cases} cases, expected at most {max_cases}. If you mean it: "
        f"--processes max_cases={data.most_cases}",
        source=source,
    )
    home = Path(f"{Path(source or data.name).stem or 'sweep'}.sweep" if folder is None else folder)
    cases = tuple(cases_of(data))
    known = read_rows(home / NAME)
    if not dry_run and (retry or any(case.key not in known for case in cases)):
        over, said = EitherStop(stop), listener or (lambda _: None)
        at_once = processes or max(1, usable_cores() // data.workers)
        with (
            ray_cluster(ray, data.workers, over)
            if ray
            else nullcontext(this_machine(at_once, over)) as place,
            opened(home, {case.key for case in cases if retry}) as (known, append),
        ):
            todo = [case for case in cases if case.key not in known]
            said(_plan(len(cases), todo, place.at_once))
            _run(data, todo, append, place, over, said, home if schedules else None)
    found = tuple(known[case.key] for case in cases if case.key in known)
    try:
        require_agreement(found)
    except Contradiction as error:
        error.kept = error.kept or str(home / NAME)
        raise
    return Sweep(cases, found, home / NAME)
