"""A schedule that users know, built on a split with the recomputation that serves it best."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from pipesat.choose.candidates import Candidate, Flags, has_variant
from pipesat.choose.question import Question
from pipesat.choose.rows import Row, fits
from pipesat.choose.runtimes import marked, to_do
from pipesat.choose.splits import balanced_partition, even_partition
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import peak_memory
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.settings import Runtime
from pipesat.heuristics.registry import GiveUp, never
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import most_blocks
from pipesat.layers.pipeline import Pipeline
from pipesat.placement.geometry import OneRoutePlacement
from pipesat.workflows.hand_written import baseline

SCHEDULES: Final[dict[OneRoutePlacement, tuple[str, ...]]] = {
    "chain": ("1f1b", "zb-h1"),
    "loop": ("interleaved-1f1b", "interleaved-zb"),
    "vee": ("zb-v", "dualpipev"),
}
"""Hand-written schedules of the table, by placement, the plainest first."""
SPLITS: Final = {"even": even_partition, "balanced": balanced_partition}

LeftOut = Callable[[str, str], None]
"""Told the name of what has no row, and why."""


def hand_written_of(question: Question, placement: OneRoutePlacement) -> tuple[str, ...]:
    """Return the names that the table has of a placement, for the runtime."""
    names, parts = SCHEDULES[placement], question.parts is not None
    if parts and placement == "loop":
        names += ("interleaved-overlapped",)
    if question.any_order:
        return names
    own = (*question.record.built_in, *(["dualpipev"] if parts else []))  # to compare with pairs
    return tuple(name for name in names if name in own)


@lru_cache(maxsize=256)
def cut(split: str, layers: Layers, shape: Pipeline) -> tuple[range, ...]:
    """Return the even or the balanced split of a shape.

    Raises
    ------
    BadInput, Infeasible, NotApplicable
        If there is none.
    """
    return SPLITS[split](layers, shape)


def rows_of_flags(
    question: Question,
    name: str,
    split: str,
    shape: Pipeline,
    partition: tuple[range, ...],
    runtime: Runtime | None,
    group: int | None = None,
    over: GiveUp = never,
) -> Iterator[Row]:
    """Yield the row of the recomputation with which a schedule runs fastest.

    If that needs work by hand, the fastest that needs none follows. If nothing fits, it is what
    needs least memory. Once it is ``over``, no more ways to recompute are tried.

    Raises
    ------
    NotApplicable
        If the schedule does not exist on this shape.
    """
    build = partial(baseline, name, group=group)

    def made(flags: Flags, first: int | None = None) -> Row:
        candidate = question.candidate(partition, shape, flags, runtime, first=first)
        return row_of(build, name, split, candidate, group)

    if runtime is not None and not question.any_order:
        rows = list(_of_megatron(question, made, partition, over))
    else:
        rows = list(kept_less_and_less(question, shape, partition, made, over))
    best = plainly_named(question, marked(question, min(rows, key=_rank)))
    yield best
    if best.by_hand:
        easy = [row for row in rows if row.fits and not to_do(question, row)[1]]
        if easy:
            yield plainly_named(question, marked(question, min(easy, key=_rank)))


def _of_megatron(
    question: Question, made: Callable[..., Row], partition: tuple[range, ...], over: GiveUp
) -> Iterator[Row]:
    """Nothing recomputes, or as few first layers of every stage as fit, or all."""
    row = made(())
    yield row
    if not question.may_recompute:
        return
    for first in () if row.fits else range(1, most_blocks(question.layers, partition)):
        row = made((), first)
        yield row
        if row.fits or over():  # more would only take longer
            break
    yield made(tuple(has_variant(question.layers, part) for part in partition))


def kept_less_and_less(
    question: Question,
    shape: Pipeline,
    partition: tuple[range, ...],
    made: Callable[[Flags], Row],
    over: GiveUp = never,
) -> Iterator[Row]:
    """Yield rows of one schedule in which one more stage recomputes each time, from none to all.

    None and all come first, should it be over then. Of the others, first it is always the first one
    left, as early stages hold their activations longest; then, from none again, always one of the
    device that needs most memory of those that have one left. Which stages these are does not
    depend on how much memory there is, so whatever fits into some memory is also tried with more:
    more never makes the best of them worse. The end is left out where recomputing makes the
    devices' work alone longer than the best so far takes.
    """
    none = made(())
    yield none
    if not question.may_recompute:
        return
    homes, saved = shape.homes, [_saved(question, part) for part in partition]

    def fullest(row: Row, left: set[int]) -> int:
        peaks = row.peaks
        return max(left, key=lambda stage: (peaks[homes[stage]], saved[stage], -stage))

    def first(_: Row, left: set[int]) -> int:
        return min(left)

    every = made(tuple(has_variant(question.layers, part) for part in partition))
    yield every
    best = min((row.makespan for row in (none, every) if row.fits), default=None)
    for choose in (first, fullest):
        left = {stage for stage, part in enumerate(partition) if has_variant(question.layers, part)}
        flags, row = [False] * len(partition), none
        while len(left) > 1 and (best is None or _load(row.problem) <= best) and not over():
            stage = choose(row, left)
            left.remove(stage)
            flags[stage] = True
            row = made(tuple(flags))
            yield row
            if row.fits:
                best = row.makespan if best is None else min(best, row.makespan)


def _saved(question: Question, part: range) -> int:
    own = [question.layers.layers[k] for k in part]
    return sum(
        one.amount("held_after_F") - one.amount("held_after_F", recompute=True) for one in own
    )


def _load(problem: Problem) -> int:
    """What the busiest device has to do."""
    (route,) = problem.routes
    return route.microbatches * max(
        sum(problem.stages[s].F + problem.stages[s].least_backward_work for s in stages)
        for stages in problem.stages_on
    )


def plainly_named(question: Question, row: Row) -> Row:
    """Call a row by the plainest name that has its order: of some problems, zb-h1 is 1F1B."""
    names = hand_written_of(question, row.shape.placement)
    for name in names[: names.index(row.name)] if row.name in names else ():
        with contextlib.suppress(NotApplicable):
            if baseline(name, row.problem).order == row.schedule.order:
                return replace(row, name=name, group=None)
    return row


def row_of(
    build: Callable[[Problem], Schedule],
    name: str,
    split: str,
    candidate: Candidate,
    group: int | None = None,
) -> Row:
    """Build a schedule and return its row, not yet marked."""
    problem = candidate.problem
    schedule = build(problem)
    peaks = zip(peak_memory(problem, schedule), problem.devices, strict=True)
    over = any(d.memory is not None and peak > d.memory for peak, d in peaks)
    return Row(name, split, candidate, schedule, not over and fits(problem, schedule), group=group)


def _rank(row: Row) -> tuple[bool, bool, int, int]:
    least = row.makespan if row.fits else max(row.peaks)
    return not row.fits, not row.runs, least, len(row.again)
