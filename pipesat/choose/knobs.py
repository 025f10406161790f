"""What users know, as builds: families of schedules, their splits, and the knobs of 1F1B.

A family is a hand-written schedule in one placement. Each has one build before any has a second
one, and those come first whose activations should fit into memory: whenever time ends, what is left
is named.

Megatron-LM runs 1F1B with one stage per rank, interleaved 1F1B with several, in groups of
microbatches whose size it lets its user choose within guards (:mod:`pipesat.layers.megatron`); it
recomputes all layers, or as many first ones on every stage. For torch the same is searched, over
fewer stages per rank, and any stages may recompute. Layouts are moved layer by layer while that
makes the schedule shorter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final

from pipesat.choose.candidates import usual_in_flight
from pipesat.choose.question import Question
from pipesat.choose.rows import Row, rank
from pipesat.choose.runtimes import marked
from pipesat.choose.written import (
    SCHEDULES,
    LeftOut,
    cut,
    hand_written_of,
    row_of,
    rows_of_flags,
)
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.settings import Runtime
from pipesat.core.showing import ranges
from pipesat.core.solving import Deadline
from pipesat.heuristics.registry import GiveUp
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import group_sizes, overlap_options, refusal
from pipesat.layers.pipeline import Pipeline, shape_name
from pipesat.layers.stages import static_of_devices
from pipesat.placement.geometry import CHUNKS
from pipesat.workflows.hand_written import baseline

_MOST_CHUNKS: Final = 8
_MOST_OF_TORCH: Final = 4  # time is needed for our own search
_GROUPS: Final = 4  # sizes tried per shape beside the usual one
_IN_GROUPS: Final = ("interleaved-1f1b", "interleaved-overlapped")
_MOVED: Final = 3  # rows whose layouts are moved


@dataclass(frozen=True)
class Family:
    """A hand-written schedule in one placement: ``interleaved-1f1b`` in a loop of 3.

    ``groups`` are the sizes of its groups of microbatches, the usual one first; ``None``: one per
    device, or it has none.
    """

    name: str
    shape: Pipeline
    runtime: Runtime | None
    groups: tuple[int | None, ...] = (None,)

    def builds(self) -> list[Build]:
        """Return its builds, the first one first: on both splits, then in other groups."""
        return [Build(self, *how) for how in product(self.groups, ("balanced", "even"))]


@dataclass(frozen=True)
class Build:
    """One schedule of a family, on one split."""

    family: Family
    group: int | None
    split: str

    def rows(self, question: Question, left_out: LeftOut, over: GiveUp) -> Iterator[Row]:
        """Yield its rows, with what recomputing suits it; both splits may be one: the even one."""
        name, shape, layers = self.family.name, self.family.shape, question.layers
        group = f", groups of {self.group}" if self.group is not None else ""
        where = f"{name} in a {shape_name(shape)}{group} ({self.split} split)"
        try:
            partition = cut(self.split, layers, shape)
            split = "even" if partition == _cut_or_none("even", layers, shape) else "balanced"
            if self.split == "even" and partition == _cut_or_none("balanced", layers, shape):
                return
            yield from rows_of_flags(
                question, name, split, shape, partition, self.family.runtime, self.group, over
            )
        except (BadInput, Infeasible, NotApplicable) as error:
            left_out(where, str(error))


def _cut_or_none(split: str, layers: Layers, shape: Pipeline) -> tuple[range, ...] | None:
    try:
        return cut(split, layers, shape)
    except (BadInput, Infeasible, NotApplicable):
        return None


def families(question: Question, left_out: LeftOut) -> list[Family]:
    """Return the families to try, those first that should fit; of those, what is usually best."""
    p, m = question.devices, question.microbatches
    megatron = not question.any_order
    sizes = group_sizes(p, m) if p > 1 else []
    if megatron and question.parts is None:
        option, *_ = overlap_options()
        left_out(option, "searched if --parts says what a layer's ops are made of")
    if megatron and not sizes:
        names = hand_written_of(question, "loop")
        left_out(" and ".join(names), refusal(p, 2, m) or "")
    tried = list(dict.fromkeys([*(s for s in sizes if m % s == 0), *sizes]))[: 1 + _GROUPS]
    groups = tuple(sorted((None if g == p else g for g in tried), key=lambda g: g is not None))
    most = min(_MOST_CHUNKS if megatron else _MOST_OF_TORCH, len(question.layers) // p)
    found = []
    for placement in ("chain", "vee", "loop"):
        runtime = question.runtime_in(placement)
        for chunks in range(CHUNKS, max(CHUNKS, most) + 1) if placement == "loop" else (CHUNKS,):
            shape = question.shape(placement, chunks)
            for name in hand_written_of(question, placement):
                if name not in _IN_GROUPS:
                    if placement != "loop" or chunks == CHUNKS:
                        found.append(Family(name, shape, runtime))
                elif groups or not megatron:
                    usual = () if megatron else (None,)
                    own = tuple(dict.fromkeys([*usual, *groups]))
                    found.append(Family(name, shape, runtime, own))
    return sorted(found, key=lambda family: _lacking(question, family.shape))


def _lacking(question: Question, shape: Pipeline) -> int:
    """What the usual number of microbatches in flight lacks on the even split; 0: it should fit.

    Activations that can be recomputed count as if they were.
    """
    layers = question.layers
    partition = _cut_or_none("even", layers, shape)
    if question.memory is None or partition is None:
        return 0
    held = layers.amounts("held_after_F", recompute=question.may_recompute)
    need = [*static_of_devices(layers, partition, shape)]
    usual = usual_in_flight(shape)
    if shape.placement == "vee":  # of the 2 p on a device, fewer on a stage that is nearer the end
        usual = tuple(min(shape.microbatches, shape.stages - s) for s in range(shape.stages))
    for part, home, flying in zip(partition, shape.homes, usual, strict=True):
        need[home] += flying * sum(held[layer] for layer in part)
    return max(0, max(need) - question.memory)


def families_text(left: Iterable[Family]) -> list[str]:
    """Name families in words, the loops of one schedule together."""
    loops: dict[str, list[int]] = {}
    said = []
    for family in left:
        if family.shape.placement == "loop":
            loops.setdefault(family.name, []).append(family.shape.chunks)
        else:
            said.append(f"{family.name} in a {family.shape.placement}")
    for name, chunks in loops.items():
        named = "a loop" if len(chunks) == 1 else "loops"
        said.append(f"{name} in {named} of {ranges(sorted(chunks))}")
    return said


def not_tried(families: Iterable[Family], builds: Sequence[Build]) -> str:
    """Say which settings of interleaved 1F1B time ended before; empty: none."""
    own = [family for family in families if family.name == "interleaved-1f1b"]
    said = [f"{text.partition(' in ')[2]} not tried in time" for text in families_text(own)]
    if any(build.family.name == "interleaved-1f1b" and build.group for build in builds):
        said.append("not every size of groups tried in time")
    return ", ".join(said)


def moved_rows(question: Question, rows: list[Row], deadline: Deadline) -> Iterator[Row]:
    """Yield better rows: the layouts of the best ones, moved a layer at a time while it helps."""
    if not question.any_order:
        best = sorted((row for row in rows if row.runs), key=rank)[:_MOVED]
    else:
        found = sorted((row for row in rows if row.fits), key=rank)
        best = [row for row in found if row.name == "1f1b"][:1]
        best += [row for row in found if row.name in SCHEDULES["vee"]][:1]
        best += [row for row in found if row.name == "interleaved-1f1b"][:_MOVED]
        best += [row for row in found if row.name == "interleaved-overlapped"][:_MOVED]
    for start in best:
        last, better = start, _better_neighbour(question, start, deadline)
        while better is not None:
            yield better
            last, better = better, _better_neighbour(question, better, deadline)
        if last is not start:
            shape, partition = last.shape, last.partition
            yield from rows_of_flags(
                question,
                last.name,
                "ours",
                shape,
                partition,
                last.candidate.runtime,
                last.group,
                over=lambda: deadline.over,
            )


def _better_neighbour(question: Question, row: Row, deadline: Deadline) -> Row | None:
    """The best neighbour that runs, if it is better; Megatron-LM's stages recompute alike."""
    build, asked, best = partial(baseline, row.name, group=row.group), row.candidate, row
    for partition, wanted in question.space.around(asked):
        if deadline.over:
            break
        if not question.any_order and partition == asked.partition:
            continue
        flags = question.space.settled(row.shape, partition, wanted)
        near = question.candidate(partition, row.shape, flags, asked.runtime, first=asked.first)
        with contextlib.suppress(NotApplicable):
            made = row_of(build, row.name, "ours", near, row.group)
            made = made if question.any_order else marked(question, made)
            best = made if made.runs and made.makespan < best.makespan else best
    return None if best is row else marked(question, best)
