"""What recomputing and pairs take besides the exported order: said in every file handed over."""

from __future__ import annotations

from typing import Final

from pipesat.advise.answer import Answer, memory_text
from pipesat.advise.families import plain_of
from pipesat.advise.question import Question
from pipesat.advise.rows import Row
from pipesat.advise.runtimes import stages_text
from pipesat.advise.written import SCHEDULES
from pipesat.core.amounts import rounded_down
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import peak_memory
from pipesat.workflows.hand_written import baseline

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
