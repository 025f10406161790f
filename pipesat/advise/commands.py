"""The commands that repeat each part of an answer, in a shell in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipesat.advise.credit import OURS
from pipesat.advise.recomputing import PLAIN, plain_row, remark_of
from pipesat.advise.rows import Row
from pipesat.advise.runtimes import checkpointing_of
from pipesat.workflows.plan_orders import SOME_SETTINGS

if TYPE_CHECKING:
    from pipesat.advise.advice import Advice
    from pipesat.plan.answer import Plan

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
        if row.offload or (searched and row is not advice.chosen):
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
