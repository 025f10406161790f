"""The folder of an answer: configuration, order, hazards, report, and the commands to repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipesat.advise.advice import Advice
from pipesat.advise.rows import OURS, Row
from pipesat.advise.runtimes import checkpointing_of, options_of
from pipesat.advise.table import PLAIN, megatron_flags, plain_row, remark_of
from pipesat.core.claims import Standing
from pipesat.core.result import Baseline, Result
from pipesat.export import EXPORTERS, FILE_NAMES
from pipesat.export.programs import PROGRAMS
from pipesat.export.result_folder import result_files
from pipesat.files.folder import write_folder
from pipesat.files.schedule_file import schedule_bytes
from pipesat.layers.file import layers_bytes
from pipesat.layers.layer import Layers
from pipesat.plan.picture import plan_pictures
from pipesat.report.study import report
from pipesat.workflows.plans import SOME_SETTINGS

if TYPE_CHECKING:
    from pipesat.advise.advice import Advice
    from pipesat.plan.answer import Plan


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
    files = {LAYERS: layers_bytes(_without_reserve(advice))}
    files |= {f"rows/{problem_name(row)}": _json(row.problem.document) for row in advice.shown}
    made = None
    if row is not None:
        for_torch = advice.question.any_order and advice.question.runtime not in PROGRAMS
        made = result_files(folder, result_of(advice, row), log, orders=for_torch)
        files |= made.files | _configuration(advice, row)
    files |= _plain_files(advice)

    def claims() -> dict[str, bytes]:
        said = _json(advice.document([*commands(advice)]))
        return {"advice.json": said, "commands.sh": _script(advice).encode()}

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


def _script(advice: Advice) -> str:
    head = ["#!/usr/bin/env bash", "# Repeats each part of the answer; run it in this folder."]
    return "\n".join([*head, "set -euo pipefail", *commands(advice)]) + "\n"


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


LAYERS = "layers.json"


def commands(advice: Advice) -> Iterator[str]:
    """Yield them in order: layers, search, the chosen row, its export, the report."""
    question = advice.question
    if advice.origin:
        yield f"{advice.origin} -o {LAYERS}"
    if advice.plan is not None:
        yield _plan(advice, advice.plan)
    for row in advice.shown:
        searched = row.name == OURS or row.schedule.source.endswith(SOME_SETTINGS)
        if row.candidate.offload or (searched and row is not advice.chosen):
            yield f"pipesat solve rows/{problem_name(row)} -o rows/{stem(row)}"
        elif not searched and row.fits:
            yield _baseline(row)
    if advice.chosen is None:
        return
    yield "pipesat compare problem.json"
    if not question.any_order:
        yield "cat megatron.txt"
    else:
        yield _export(advice, advice.chosen, "")
        plain = plain_row(advice)
        if plain is not None:
            yield _export(advice, plain, f"{PLAIN}/")
    yield "pipesat show . --html report.html"


def _export(advice: Advice, row: Row, folder: str) -> str:
    counts = ",".join(map(str, row.layout(advice.question).counts))
    words = ["pipesat", "export", f"{folder}problem.json", f"{folder}schedule.json"]
    words += ["--to", advice.question.runtime]
    if advice.question.record.takes_layers:
        words[-1] += f",layers={counts},checkpointing={checkpointing_of(row)}"
    if remark := remark_of(advice, row):
        words[-1] += f",remark={remark}"
    return shlex.join([*words, "-o", folder or "./"])


def _plan(advice: Advice, plan: Plan) -> str:
    question = advice.question
    loops = sorted({s.chunks for s in plan.question.shapes if s.placement == "loop"})
    words = ["pipesat", "plan", LAYERS, "--devices", str(question.devices)]
    words += ["--microbatches", str(question.microbatches), "--placement"]
    words.append("any" + ",chunks=" * bool(loops) + ",".join(map(str, loops)))
    if question.memory is not None:
        words += ["--memory", f"{question.memory}"]
    if question.reserve:
        words += ["--memory", f"reserve={question.reserve}"]
    if question.may_recompute:
        words += ["--recompute", "choose"]
    if question.latency:
        words += ["--link-delay", str(question.latency)]
    if question.bandwidth is not None:
        words += ["--link-delay", f"bandwidth={question.bandwidth}"]
    if question.any_order:
        words += ["--for", question.runtime]
    return shlex.join([*words, "-o", "plan"])


def problem_name(row: Row) -> str:
    """Name of the file with a row's problem."""
    return f"{stem(row)}.problem.json"


def stem(row: Row) -> str:
    """What a row's files are called; ours and 1F1B may be there with and without work by hand."""
    return f"{row.name}-{row.split}{'-by-hand' if row.by_hand else ''}"


def _baseline(row: Row) -> str:
    name = row.name if row.group is None else f"{row.name}, groups of {row.group}"
    words = ["pipesat", "export", f"rows/{problem_name(row)}", name, "--to", "schedule"]
    return shlex.join([*words, "-o", f"rows/{stem(row)}.json"])
