"""What is shown above the advice, and what its files say besides the order.

The best of what users know, and ours. Megatron-LM's flags, and what recomputing and pairs take.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Final

from pipesat.choose.answer import Answer, memory_text, time_text
from pipesat.choose.families import plain_of
from pipesat.choose.question import Question
from pipesat.choose.rows import Row
from pipesat.choose.runtimes import stages_text
from pipesat.choose.written import SCHEDULES
from pipesat.core.amounts import rounded_down
from pipesat.core.claims import percent
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import peak_memory
from pipesat.core.showing import Column, Table
from pipesat.layers.megatron import (
    OVERLAP_WANTS,
    group_option,
    layout_option,
    overlap_options,
    recompute_options,
)
from pipesat.workflows.hand_written import baseline


def table_of(answer: Answer) -> Table:
    """Return the rows that are shown; columns without an entry are left out."""
    question, rows = answer.question, answer.shown
    holds = question.parts is None or any(max(row.peaks) for row in rows)
    columns = [
        Column("schedule", number=False),
        Column("split", number=False),
        Column("placement", number=False),
        Column("recomputes", number=False, spare=2),
        Column("time"),
        Column("tokens/s", spare=3),
        Column("of\nideal", spare=4),
        Column("pairs", spare=1),
        Column("memory"),
        Column(f"runs in\n{question.runtime}", number=False),
    ]
    lines = [
        [
            row.name if row.group is None else f"{row.name}, groups of {row.group}",
            row.split,
            row.placement,
            _recomputes(row) if question.may_recompute else "",
            time_text(question, row.makespan),
            _tokens(row.tokens_per_second(question)),
            "" if question.parts is not None else percent(row.share_of_ideal(question), 0),
            "" if question.parts is None else str(row.pairs),
            memory_text(question, max(row.peaks) - question.reserve) if holds else "",
            _runs(row),
        ]
        for row in rows
    ]
    needed = [any(line[i] for line in lines) for i in range(len(columns))]
    title = "times and memory are an estimate" if question.layers.estimate else ""
    shown = [[*compress(line, needed)] for line in lines]
    return Table([*compress(columns, needed)], shown, title)


def tables_of(answer: Answer) -> Iterator[Table]:
    """Yield the table of schedules, and what Megatron-LM is started with."""
    yield table_of(answer)
    if not answer.question.any_order and answer.chosen is not None:
        flags = megatron_flags(answer.question, answer.chosen).rstrip().split("\n")
        yield Table([Column("flags for Megatron-LM", number=False)], flags)


def _recomputes(row: Row) -> str:
    if row.candidate.first is not None:
        return f"first {row.candidate.first} of each"
    return stages_text(row.again) if row.again else "none"


def _tokens(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _runs(row: Row) -> str:
    if not row.fits:
        return "too large"
    if row.why_not:
        return "no"
    return "by hand" if row.by_hand else "yes"


def megatron_flags(question: Question, row: Row) -> str:
    """Return Megatron-LM's options for a row that it runs, one per line."""
    lines = [
        *([f"# {row.name}: {row.published}"] if row.published else []),
        f"--pipeline-model-parallel-size={question.devices}",
        layout_option(question.layers, row.partition),
    ]
    if row.group is not None:
        lines.append(group_option(row.group))
    if row.pairs:
        lines += [*overlap_options(), f"# {OVERLAP_WANTS}"]
    if row.again or row.candidate.first is not None:
        lines += recompute_options(row.candidate.first)
    lines.append(
        f"# --global-batch-size = {question.microbatches} x --micro-batch-size x data parallel size"
    )
    if not question.layers.hybrid and (silent := _not_of_the_model(question)):
        lines.append(f"# Megatron-LM wants {silent} in its layout, which times here do not count")
    return "\n".join(lines) + "\n"


def _not_of_the_model(question: Question) -> str:
    """Name what a layout has and the layers do not: parts alone have no embedding and no loss."""
    roles = {layer.role for layer in question.layers.layers}
    names = {"embedding": "E (the embedding)", "head": "L (the loss)"}
    return " and ".join(text for role, text in names.items() if role not in roles)


PLAIN: Final = "nothing-by-hand"
"""Folder of the best row that is exported and run as it is."""


def plain_row(answer: Answer) -> Row | None:
    """Return the best row that runs as it is exported, if the chosen one needs work by hand."""
    if answer.chosen is None or not answer.chosen.by_hand:
        return None
    return plain_of(answer.rows)


def needed_without(question: Question, row: Row) -> str:
    """Say what the plain schedule would need without recomputing; empty if it fits or is none."""
    if question.memory is None:
        return ""
    plain = question.candidate(row.partition, row.shape, (), row.candidate.runtime).problem
    name = SCHEDULES[row.shape.placement][0]
    try:
        peaks = peak_memory(plain, baseline(name, plain))
    except NotApplicable:
        return ""
    need, room = max(peaks) - question.reserve, question.memory - question.reserve
    if need <= room:
        return ""
    rank, needed = peaks.index(max(peaks)), memory_text(question, need)
    there = memory_text(question, room, rounded_down)
    return f"without, {name} would need {needed} on rank {rank}, and there are {there}"


def remark_of(answer: Answer, row: Row) -> str:
    """Return what a row's configuration cannot say, for its comments: whose order it is, too."""
    whose = f"The order is {row.name}: {row.published}." if row.published else ""
    return " ".join(filter(None, (_to_do(answer, row), whose)))


def _to_do(answer: Answer, row: Row) -> str:
    """What has to be done besides, and what times count on; empty: nothing."""
    plain = row is answer.chosen and plain_row(answer) is not None
    there = f" The best found that needs nothing by hand is in {PLAIN}/." if plain else ""
    if not row.again:
        by_hand = f"{row.by_hand[:1].upper()}{row.by_hand[1:]}"
        return f"{by_hand}; times of this order count on it.{there}" if by_hand else ""
    need = needed_without(answer.question, row)
    counts = f"times and memory of this order count on it{f' ({need})' if need else ''}."
    if not row.by_hand:
        return f"Full activation checkpointing is set: {counts}" if row.setting else ""
    text = (
        f"Checkpoint {stages_text(row.again)} in your own code, every layer of each, and no other "
        f"stage: {counts} Their backwards are never split; what is said here against activation "
        "checkpointing is meant for the other stages: the switch for all of them is off."
    )
    return text + there
