"""The knobs of 1F1B: stages per rank, group size, layout, recomputation.

Megatron-LM runs 1F1B with one stage per rank, interleaved 1F1B with several, in groups of
microbatches whose size it lets its user choose within guards (:mod:`pipesat.layers.megatron`); it
recomputes all layers, or as many first ones on every stage. For torch the same is searched, over
fewer stages per rank, and any stages may recompute. Layouts are moved layer by layer while that
makes the schedule shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from pipesat.advise.question import Question
from pipesat.advise.rows import Row
from pipesat.advise.written import LeftOut, best_flags, splits
from pipesat.core.errors import NotApplicable
from pipesat.core.solving import Deadline
from pipesat.layers.megatron import group_sizes, overlap_options, refusal
from pipesat.layers.rules import neighbours
from pipesat.placement.geometry import CHUNKS

_MOST_CHUNKS: Final = 8
_MOST_OF_TORCH: Final = 4  # time is needed for our own search
_GROUPS: Final = 4  # sizes tried per shape beside the usual one
_MOVED: Final = 3  # rows whose layouts are moved


def interleaved_rows(question: Question, left_out: LeftOut) -> Iterator[Row]:
    """Yield rows of interleaved 1F1B over stages per rank and group sizes, on both splits."""
    p, m = question.devices, question.microbatches
    megatron = question.runtime == "megatron"
    sizes = group_sizes(p, m) if p > 1 else []
    names = ["interleaved-1f1b"]
    if question.parts is not None:
        names.insert(0, "interleaved-overlapped")  # first, should the time be short
    elif megatron:
        option, *_ = overlap_options()
        left_out(option, "searched if --parts says what a layer's ops are made of")
    if megatron and not sizes:
        left_out(" and ".join(names), refusal(p, 2, m) or "")
    if not sizes:
        return
    groups = list(dict.fromkeys([*(s for s in sizes if m % s == 0), *sizes]))[: 1 + _GROUPS]
    most = _MOST_CHUNKS if megatron else _MOST_OF_TORCH
    for chunks in range(2, min(most, len(question.layers) // p) + 1):
        shape = question.shape("loop", chunks)
        for split, partition in splits(question, shape, left_out):
            for name, group in product(names, groups):
                told = None if group == p else group
                if told is None and chunks == CHUNKS and not megatron:
                    continue  # one of the schedules that everybody knows
                with_name = f"{name}, {chunks} stages per rank, groups of {group}"
                try:
                    yield best_flags(
                        question, name, split, shape, partition, question.runtime, told
                    )
                except NotApplicable as error:
                    left_out(with_name, str(error))


def moved_rows(question: Question, rows: list[Row], deadline: Deadline) -> Iterator[Row]:
    """Yield better rows: the layouts of the best ones, moved a layer at a time while it helps."""
    if question.runtime == "megatron":
        best = sorted((row for row in rows if row.runs), key=lambda row: row.makespan)[:_MOVED]
    else:
        found = sorted((row for row in rows if row.fits), key=lambda row: row.makespan)
        best = [row for row in found if row.name == "1f1b"][:1]
        best += [row for row in found if row.name == "interleaved-1f1b"][:_MOVED]
        best += [row for row in found if row.name == "interleaved-overlapped"][:_MOVED]
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
                question, row.name, "ours", row.shape, partition, row.runtime, row.group
            )
        except NotApplicable:
            continue
        counts = near.runs if question.runtime == "megatron" else near.fits
        if counts and near.makespan < (found or row).makespan:
            found = near
    return found
