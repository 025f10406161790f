"""Megatron-LM's knobs under its own rules: stages per rank, group size, layout, recomputation.

It runs 1F1B with one stage per rank, interleaved 1F1B with several, in groups of microbatches whose
size it lets its user choose within guards (:mod:`pipesat.layers.megatron`); it recomputes all
layers, or as many first ones on every stage. Layouts are moved layer by layer while that makes the
schedule shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pipesat.advise.question import Question
from pipesat.advise.rows import Row
from pipesat.advise.written import LeftOut, best_flags, splits
from pipesat.core.errors import NotApplicable
from pipesat.core.solving import Deadline
from pipesat.layers.megatron import group_sizes, refusal
from pipesat.layers.rules import neighbours

_MOST_CHUNKS: Final = 8
_GROUPS: Final = 4  # sizes tried per shape beside the usual one
_MOVED: Final = 3  # rows whose layouts are moved


def interleaved_rows(question: Question, left_out: LeftOut) -> Iterator[Row]:
    """Yield rows of interleaved 1F1B over stages per rank and group sizes, on both splits."""
    p, m = question.devices, question.microbatches
    left_out("--overlap-moe-expert-parallel-comm", "not searched: layers have no times of pairs")
    if p == 1:
        left_out("interleaved-1f1b", refusal(p, 2, m) or "")
        return
    sizes = group_sizes(p, m)
    if not sizes:
        left_out("interleaved-1f1b", refusal(p, 2, m) or "")
        return
    groups = list(dict.fromkeys([*(s for s in sizes if m % s == 0), *sizes]))[: 1 + _GROUPS]
    for chunks in range(2, min(_MOST_CHUNKS, len(question.layers) // p) + 1):
        shape = question.shape("loop", chunks)
        for split, partition in splits(question, shape, left_out):
            for group in groups:
                told = None if group == p else group
                with_name = f"interleaved-1f1b, {chunks} stages per rank, groups of {group}"
                try:
                    yield best_flags(
                        question, "interleaved-1f1b", split, shape, partition, "megatron", told
                    )
                except NotApplicable as error:
                    left_out(with_name, str(error))


def moved_rows(question: Question, rows: list[Row], deadline: Deadline) -> Iterator[Row]:
    """Yield better rows: the layouts of the best ones, moved a layer at a time while it helps."""
    best = sorted((row for row in rows if row.runs), key=lambda row: row.makespan)[:_MOVED]
    for start in best:
        better = _better_neighbour(question, start, deadline)
        while better is not None:
            yield better
            better = _better_neighbour(question, better, deadline)


def _better_neighbour(question: Question, row: Row, deadline: Deadline) -> Row | None:
    found = None
    if not all(row.partition):
        return None
    for partition in neighbours(question.layers, row.partition, row.shape):
        if deadline.over:
            break
        try:
            near = best_flags(
                question, row.name, "ours", row.shape, partition, "megatron", row.group
            )
        except NotApplicable:
            continue
        if near.runs and near.makespan < (found or row).makespan:
            found = near
    return found
