"""The schedules that users know, each on the even and on the balanced split."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from pipesat.advise.question import Question, Runtime
from pipesat.advise.rows import Row, fits
from pipesat.advise.runtimes import marked, to_do
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.memory import peak_memory
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.layers.megatron import most_blocks
from pipesat.layers.pipeline import Pipeline
from pipesat.placement.geometry import OneRoutePlacement
from pipesat.plan.even_split import even_partition
from pipesat.plan.proposals import balanced_partition
from pipesat.plan.recompute import Flags, has_variant
from pipesat.workflows.hand_written import baseline

SCHEDULES: Final[dict[OneRoutePlacement, tuple[str, ...]]] = {
    "chain": ("1f1b", "zb-h1"),
    "loop": ("interleaved-1f1b", "interleaved-zb"),
    "vee": ("zb-v", "dualpipev"),
}
"""Hand-written schedules of the table, by placement, the plainest first."""
SPLITS: Final = {"even": even_partition, "balanced": balanced_partition}

LeftOut = Callable[[str, str], None]


def hand_written_of(question: Question, placement: OneRoutePlacement) -> tuple[str, ...]:
    """Return the names that the table has of a placement, for the runtime."""
    combined = ("interleaved-overlapped",) if question.parts is not None else ()
    if question.runtime != "megatron":
        return SCHEDULES[placement] + (combined if placement == "loop" else ())
    if placement == "vee":
        return ("dualpipev",) if question.parts is not None else ()
    return SCHEDULES["chain"] if placement == "chain" else ("interleaved-1f1b", *combined)


def hand_written_rows(question: Question, left_out: LeftOut) -> Iterator[Row]:
    """Yield a row per schedule and split, with the recomputation that serves it best.

    Parameters
    ----------
    left_out
        Told the name of what has no row, and why.
    """
    for placement in SCHEDULES:
        names, runtime = hand_written_of(question, placement), question.runtime_in(placement)
        if not names or (runtime == "megatron" and placement == "loop"):
            continue  # its loops are tried with all their knobs
        shape = question.shape(placement)
        for split, partition in splits(question, shape, left_out):
            for name in names:
                try:
                    yield from rows_of_flags(question, name, split, shape, partition, runtime)
                except NotApplicable as error:
                    left_out(f"{name} ({split} split)", str(error))


def splits(
    question: Question, shape: Pipeline, left_out: LeftOut
) -> Iterator[tuple[str, tuple[range, ...]]]:
    """Yield the even and the balanced split of a shape, where they exist."""
    for split, cut in SPLITS.items():
        try:
            partition = cut(question.layers, shape)
        except (BadInput, Infeasible, NotApplicable) as error:
            left_out(f"{split} split, {shape.placement}", str(error))
        else:
            yield split, partition


def rows_of_flags(
    question: Question,
    name: str,
    split: str,
    shape: Pipeline,
    partition: tuple[range, ...],
    runtime: Runtime | None,
    group: int | None = None,
) -> Iterator[Row]:
    """Yield the row of the recomputation with which a schedule runs fastest.

    If that needs work by hand, the fastest that needs none follows. If nothing fits, it is what
    needs least memory.

    Raises
    ------
    NotApplicable
        If the schedule does not exist on this shape.
    """
    build = partial(baseline, name, group=group)

    def made(flags: Flags, first: int | None = None) -> Row:
        problem = question.problem(partition, shape, flags, runtime, first=first)
        row = row_of(build, name, split, shape, partition, flags, problem, runtime)
        return replace(row, group=group, first=first)

    rows = list(_of_megatron(question, made, partition) if runtime == "megatron" else ())
    rows = rows or list(kept_less_and_less(question, shape, partition, made))
    best = plainly_named(question, marked(question, min(rows, key=_rank)))
    yield best
    if best.by_hand:
        easy = [row for row in rows if row.fits and not to_do(question, row)[1]]
        if easy:
            yield plainly_named(question, marked(question, min(easy, key=_rank)))


def _of_megatron(
    question: Question, made: Callable[..., Row], partition: tuple[range, ...]
) -> Iterator[Row]:
    """Nothing recomputes, or as few first layers of every stage as fit, or all."""
    row = made(())
    yield row
    if not question.may_recompute:
        return
    for first in () if row.fits else range(1, most_blocks(question.layers, partition)):
        row = made((), first)
        yield row
        if row.fits:  # more would only take longer
            break
    yield made(tuple(has_variant(question.layers, part) for part in partition))


def kept_less_and_less(
    question: Question, shape: Pipeline, partition: tuple[range, ...], made: Callable[[Flags], Row]
) -> Iterator[Row]:
    """Yield rows of one schedule in which one more stage recomputes each time, from none to all.

    First it is always the first one left, as early stages hold their activations longest; then,
    from none again, always one of the device that needs most memory of those that have one left.
    Which stages these are does not depend on how much memory there is, so whatever fits into some
    memory is also tried with more: more never makes the best of them worse. The end is left out
    where recomputing makes the devices' work alone longer than the best so far takes.
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

    best = none.makespan if none.fits else None
    for choose in (first, fullest):
        left = {stage for stage, part in enumerate(partition) if has_variant(question.layers, part)}
        flags, row = [False] * len(partition), none
        while left and (best is None or _load(row.problem) <= best):
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
    shape: Pipeline,
    partition: tuple[range, ...],
    flags: Flags,
    problem: Problem,
    runtime: Runtime | None,
) -> Row:
    """Build a schedule and return its row, not yet marked."""
    schedule = build(problem)
    peaks = zip(peak_memory(problem, schedule), problem.devices, strict=True)
    over = any(d.memory is not None and peak > d.memory for peak, d in peaks)
    fitting = not over and fits(problem, schedule)
    return Row(name, split, shape, partition, flags, problem, schedule, runtime, fitting)


def _rank(row: Row) -> tuple[bool, bool, int, int]:
    least = row.makespan if row.fits else max(row.peaks)
    return not row.fits, not row.runs, least, len(row.again)
