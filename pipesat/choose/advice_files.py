"""The folder of an answer: configuration, order, hazards, report, and every row of the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipesat.choose.advice import Advice
from pipesat.choose.picture import plan_pictures
from pipesat.choose.rows import Row
from pipesat.choose.runtimes import options_of
from pipesat.choose.table import PLAIN, megatron_flags, plain_row, remark_of
from pipesat.core.claims import Standing
from pipesat.core.result import Baseline, Result
from pipesat.export import EXPORTERS, FILE_NAMES
from pipesat.export.result_folder import result_files
from pipesat.files.folder import write_folder
from pipesat.files.schedule_file import schedule_bytes
from pipesat.layers.file import layers_bytes
from pipesat.layers.layer import Layers
from pipesat.report.study import report


def save_advice(advice: Advice, folder: str | Path, log: Sequence[str] = ()) -> None:
    """Write every file of an answer.

    Raises
    ------
    BadInput
        If the folder cannot be written.
    Contradiction
        If the answer contradicts itself; then the schedule is written all the same.
    """
    folder, row = Path(folder), advice.chosen
    files = {"layers.json": layers_bytes(_without_reserve(advice))}
    for name, shown in advice.files.items():
        files[f"{name}.problem.json"] = _json(shown.problem.document)
        files[f"{name}.json"] = schedule_bytes(shown.problem, shown.schedule)
    made = None
    if row is not None:
        for_torch = advice.question.any_order and not advice.question.record.in_python
        made = result_files(folder, result_of(advice, row), log, orders=for_torch)
        files |= made.files | _configuration(advice, row)
    files |= _plain_files(advice)

    def claims() -> dict[str, bytes]:
        return {"advice.json": _json(advice.document())}

    def pictures() -> dict[str, bytes]:
        if made is None:
            return {}
        page = report(folder, baselines=False).html
        return _pictures(advice) | made.pictures() | {"report.html": page}

    write_folder(folder, files, claims=claims, pictures=pictures)


def _pictures(advice: Advice) -> dict[str, bytes]:
    """Draw the split that is advised; the one that the plan found may be another."""
    plan, row = advice.plan, advice.chosen
    if plan is None or row is None:
        return {}
    advised = replace(row.candidate, schedules=[row.schedule])
    drawn = plan_pictures(replace(plan, chosen=advised, bound=advice.bound))
    return {f"plan.{kind}": data for kind, data in drawn.items()}


def _configuration(advice: Advice, row: Row, place: str = "") -> dict[str, bytes]:
    """What the runtime is handed: its file, with what belongs beside it; where it is to lie."""
    to = advice.question.runtime
    if not advice.question.any_order:
        return {FILE_NAMES[to]: megatron_flags(advice.question, row).encode()}
    options = replace(
        options_of(advice.question, row),
        remark=remark_of(advice, row),
        output=Path(place, FILE_NAMES[to]),
    )
    exported = EXPORTERS[to](row.problem, row.schedule, options)
    file = Path(FILE_NAMES[to])
    beside = {file.with_suffix(suffix).name: data for suffix, data in exported.beside.items()}
    return {file.name: exported.data, **beside}


def _plain_files(advice: Advice) -> dict[str, bytes]:
    """Return the best row that needs nothing by hand, in a folder of its own."""
    row = plain_row(advice)
    if row is None:
        return {}
    files = {
        "problem.json": _json(row.problem.document),
        "schedule.json": schedule_bytes(row.problem, row.schedule),
    }
    files |= _configuration(advice, row, PLAIN)
    return {f"{PLAIN}/{name}": data for name, data in files.items()}


def result_of(advice: Advice, row: Row) -> Result:
    """Return a row as the result of a solve, with the best that is proven of its problem."""
    own = None if advice.plan is None else advice.plan.result
    same = own is not None and own.schedule == row.schedule and own.problem == row.problem
    if own is not None and same and row.bound is None:
        return own
    bounds = [bound for bound in (advice.bound, row.bound) if bound is not None]
    bound = max(bounds, key=lambda bound: bound.value, default=None)
    standing = Standing(row.makespan, None if bound is None else bound.value, of="this row")
    return Result(
        problem=row.problem,
        status=standing.status,
        objective="makespan",
        schedule=row.schedule,
        bound=bound,
        baseline=_best_published(advice, row),
        wall_s=advice.seconds,
        seed=0 if own is None else own.seed,
        workers=1 if own is None else own.workers,
        versions={} if own is None else own.versions,
    )


def _best_published(advice: Advice, row: Row) -> Baseline | None:
    """The shortest row of a published schedule that the runtime runs, on a row's problem."""
    same = [x for x in advice.rows if x.runs and x.published and x.problem == row.problem]
    best = min(same, key=lambda other: other.makespan, default=None)
    return None if best is None else Baseline(best.name, best.makespan)


def _without_reserve(advice: Advice) -> Layers:
    layers = advice.question.layers
    return replace(layers, reserve=layers.reserve - advice.question.reserve)


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()
