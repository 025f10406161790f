"""What the runtime that is asked for can run today: its exporter says so, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pipesat.choose.pairs import WHY_NOT
from pipesat.choose.question import Question
from pipesat.choose.rows import Row
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.ops import Op
from pipesat.export import EXPORTERS
from pipesat.export.as_run import as_run
from pipesat.export.options import Checkpointing, Options
from pipesat.layers.megatron import group_sizes, layout_option, refusal

_FULL: Final = "full activation checkpointing, which its configuration sets"


def marked(question: Question, row: Row) -> Row:
    """Return a row with why its runtime cannot run it, and what is to be done by hand."""
    if not row.fits:
        return replace(row, why_not="needs more memory than there is")
    if row.candidate.offload:
        return replace(row, why_not=WHY_NOT)
    if not question.any_order:
        return replace(row, why_not=_megatron(question, row))
    try:
        EXPORTERS[question.runtime](row.problem, row.schedule, options_of(question, row))
    except (NotApplicable, BadInput) as error:
        return replace(row, why_not=str(error))
    if question.record.in_python:
        made = as_run(row.problem, row.schedule, question.record)
        row = replace(row, schedule=made.schedule)
    setting, by_hand = to_do(question, row)
    return replace(row, setting=setting, by_hand=by_hand)


def options_of(question: Question, row: Row) -> Options:
    """Return what the exporter is told besides problem and schedule."""
    if not question.record.takes_layers:
        return Options()
    return Options(layers=row.layout(question).counts, checkpointing=checkpointing_of(row))


def checkpointing_of(row: Row) -> Checkpointing:
    """What a framework's one switch is set to: its own default would change costs and memory.

    Where stages have to be checkpointed in the user's own code, it is off for all others.
    """
    return "full" if row.setting else "none"


def _megatron(question: Question, row: Row) -> str:
    if row.name not in question.record.built_in or row.candidate.runtime != question.runtime:
        return "Megatron-LM runs orders of its own: 1F1B, interleaved and combined 1F1B"
    if row.again and not row.all_again(question):
        return "Megatron-LM recomputes on all stages alike"
    try:
        layout_option(question.layers, row.partition)
    except NotApplicable as error:
        return str(error)
    p, m = question.devices, question.microbatches
    chunks = row.shape.stages // p
    if row.group is not None and row.group not in group_sizes(p, m):
        return f"Megatron-LM refuses groups of {row.group}: the last one would be too small"
    return (refusal(p, chunks, m) or "") if row.group is None else ""


def to_do(question: Question, row: Row) -> tuple[str, str]:
    """What has to be set, and what to be written by hand, for stages that recompute and pairs."""
    if not row.again:
        return "", question.record.in_turn if row.pairs else ""
    splits = any(isinstance(i, Op) and i.kind == "B" for line in row.schedule.order for i in line)
    if question.record.one_switch and row.all_again(question) and not splits:
        return _FULL, ""
    return "", f"checkpoint {stages_text(row.again)} in your own code"


def stages_text(stages: tuple[int, ...]) -> str:
    """Name stages: ``stage 3``, ``stages 0-3``, ``stages 0-2, 5``."""
    runs: list[list[int]] = []
    for stage in stages:
        if runs and runs[-1][-1] == stage - 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    texts = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"stage{'' if len(stages) == 1 else 's'} {', '.join(texts)}"
