"""The knobs of 1F1B: stages per rank, group size, layout, recomputation.

Megatron-LM runs 1F1B with one stage per rank, interleaved 1F1B with several, in groups of
microbatches whose size it lets its user choose within guards (:mod:`pipesat.layers.megatron`); it
recomputes all layers, or as many first ones on every stage. For torch the same is searched, over
fewer stages per rank, and any stages may recompute. Layouts are moved layer by layer while that
makes the schedule shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

from pipesat.advise.question import Question
from pipesat.advise.rows import Row, rank
from pipesat.advise.runtimes import marked
from pipesat.advise.written import LeftOut, row_of, rows_of_flags, splits
from pipesat.core.errors import NotApplicable
from pipesat.core.showing import ranges
from pipesat.core.solving import Deadline
from pipesat.layers.megatron import group_sizes, overlap_options, refusal
from pipesat.layers.rules import neighbours
from pipesat.placement.geometry import CHUNKS
from pipesat.plan.recompute import has_variant
from pipesat.workflows.hand_written import baseline

_MOST_CHUNKS: Final = 8
_MOST_OF_TORCH: Final = 4  # time is needed for our own search
_GROUPS: Final = 4  # sizes tried per shape beside the usual one
_MOVED: Final = 3  # rows whose layouts are moved


@dataclass(frozen=True)
class Knob:
    """One setting of interleaved 1F1B: its name, stages per rank, microbatches per group."""

    name: str
    chunks: int
    group: int

    @property
    def family(self) -> str:
        """What the field calls it."""
        usual = self.name == "interleaved-1f1b"
        return "interleaved 1F1B" if usual else f"combined 1F1B ({self.name})"

    def rows(self, question: Question, left_out: LeftOut) -> Iterator[Row]:
        """Yield its rows on both splits."""
        shape = question.shape("loop", self.chunks)
        told = None if self.group == question.devices else self.group
        for split, partition in splits(question, shape, left_out):
            try:
                yield from rows_of_flags(
                    question, self.name, split, shape, partition, question.runtime, told
                )
            except NotApplicable as error:
                name = f"{self.name}, {self.chunks} stages per rank, groups of {self.group}"
                left_out(name, str(error))


def knobs(question: Question, left_out: LeftOut) -> list[Knob]:
    """Return the settings to try: every number of stages per rank before other sizes of groups."""
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
    groups = list(dict.fromkeys([*(s for s in sizes if m % s == 0), *sizes]))[: 1 + _GROUPS]
    groups.sort(key=lambda group: group != p)
    most = _MOST_CHUNKS if megatron else _MOST_OF_TORCH
    loops = range(2, min(most, len(question.layers) // p) + 1)
    found = [Knob(name, chunks, group) for group, chunks, name in product(groups, loops, names)]
    if megatron:
        return found
    usual = Knob("interleaved-1f1b", CHUNKS, p)  # one of the schedules that everybody knows
    return [knob for knob in found if knob != usual]


def not_tried(left: Sequence[Knob], tried: Iterable[Row], devices: int) -> str:
    """Say which settings of interleaved 1F1B time ended before; empty: none."""
    left = [knob for knob in left if knob.name == "interleaved-1f1b"]
    seen = {row.shape.stages // devices for row in tried if row.name == "interleaved-1f1b"}
    loops = sorted({knob.chunks for knob in left} - seen)
    said = []
    if loops:
        named = "a loop" if len(loops) == 1 else "loops"
        said.append(f"{named} of {ranges(loops)} not tried in time")
    if any(knob.chunks in seen for knob in left):
        said.append("not every size of groups tried in time")
    return ", ".join(said)


def moved_rows(question: Question, rows: list[Row], deadline: Deadline) -> Iterator[Row]:
    """Yield better rows: the layouts of the best ones, moved a layer at a time while it helps."""
    if question.runtime == "megatron":
        best = sorted((row for row in rows if row.runs), key=rank)[:_MOVED]
    else:
        found = sorted((row for row in rows if row.fits), key=rank)
        best = [row for row in found if row.name == "1f1b"][:1]
        best += [row for row in found if row.name in ("zb-v", "dualpipev")][:1]
        best += [row for row in found if row.name == "interleaved-1f1b"][:_MOVED]
        best += [row for row in found if row.name == "interleaved-overlapped"][:_MOVED]
    for start in best:
        last, better = start, _better_neighbour(question, start, deadline)
        while better is not None:
            yield better
            last, better = better, _better_neighbour(question, better, deadline)
        if last is not start:
            shape, cut = last.shape, last.partition
            yield from rows_of_flags(
                question, last.name, "ours", shape, cut, last.runtime, last.group
            )


def _better_neighbour(question: Question, row: Row, deadline: Deadline) -> Row | None:
    """The best layout a layer away, if it is better, with what recomputing suits it."""
    found = None
    if not all(row.partition):
        return None
    for partition in neighbours(question.layers, row.partition, row.shape):
        if deadline.over:
            break
        try:
            near = _near(question, row, partition)
        except NotApplicable:
            continue
        counts = near.runs if question.runtime == "megatron" else near.fits
        if counts and near.makespan < (found or row).makespan:
            found = near
    return found and marked(question, found)


def _near(question: Question, row: Row, partition: tuple[range, ...]) -> Row:
    """The row of a layout; with many stages, the same ones recompute, as trying all takes long."""
    if row.placement == "chain" or question.runtime == "megatron":
        made = rows_of_flags(
            question, row.name, "ours", row.shape, partition, row.runtime, row.group
        )
        return next(made)
    flags = tuple(
        flag and has_variant(question.layers, part)
        for flag, part in zip(row.recompute, partition, strict=False)
    )
    flags = flags if any(flags) else ()
    problem = question.problem(partition, row.shape, flags, row.runtime)
    build = partial(baseline, row.name, group=row.group)
    made_row = row_of(build, row.name, "ours", row.shape, partition, flags, problem, row.runtime)
    return replace(made_row, group=row.group)
