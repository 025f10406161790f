"""The schedules that users know, each on the even and on the balanced split."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from pipesat.advise.question import Question, Runtime
from pipesat.advise.rows import Row, fits
from pipesat.advise.runtimes import marked
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.layers.megatron import most_blocks
from pipesat.layers.pipeline import Pipeline
from pipesat.placement.geometry import OneRoutePlacement
from pipesat.plan.even_split import even_partition
from pipesat.plan.proposals import balanced_partition
from pipesat.plan.recompute import Flags, has_variant, where_needed
from pipesat.workflows.hand_written import baseline

SCHEDULES: Final[dict[OneRoutePlacement, tuple[str, ...]]] = {
    "chain": ("1f1b", "zb-h1"),
    "loop": ("interleaved-1f1b", "interleaved-zb"),
    "vee": ("zb-v", "dualpipev"),
}
"""Hand-written schedules of the table, by placement."""
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
                    yield best_flags(question, name, split, shape, partition, runtime)
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


def best_flags(
    question: Question,
    name: str,
    split: str,
    shape: Pipeline,
    partition: tuple[range, ...],
    runtime: Runtime | None,
    group: int | None = None,
) -> Row:
    """Return the row of the recomputation with which a schedule runs fastest.

    Tried are none, what 1F1B needs, and all; for Megatron-LM the fewest first layers of every stage
    that fit. If nothing fits, what needs least memory.

    Raises
    ------
    NotApplicable
        If the schedule does not exist on this shape.
    """
    build = partial(baseline, name, group=group)
    rows = []
    for flags in flags_to_try(question, shape, partition):
        problem = question.problem(partition, shape, flags, runtime)
        made = row_of(build, name, split, shape, partition, flags, problem, runtime)
        rows.append(marked(question, replace(made, group=group)))
    if runtime == "megatron" and question.may_recompute and not rows[0].fits:
        for first in range(1, most_blocks(question.layers, partition)):
            problem = question.problem(partition, shape, (), runtime, first=first)
            made = row_of(build, name, split, shape, partition, (), problem, runtime)
            rows.append(marked(question, replace(made, group=group, first=first)))
            if rows[-1].fits:  # more would only take longer
                break
    return min(rows, key=_rank)


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
    fitting = fits(problem, schedule)
    return Row(name, split, shape, partition, flags, problem, schedule, runtime, fitting)


def flags_to_try(question: Question, shape: Pipeline, partition: tuple[range, ...]) -> list[Flags]:
    """Return different choices of recomputation: none, where 1F1B needs it, everywhere."""
    if not question.may_recompute:
        return [()]
    layers = question.layers
    everywhere = tuple(has_variant(layers, part) for part in partition)
    found: list[Flags] = [(), everywhere]
    if question.runtime != "megatron":
        with contextlib.suppress(NotApplicable):
            found.append(where_needed(layers, shape, partition))
    return [flags if any(flags) else () for flags in dict.fromkeys(found)]


def _rank(row: Row) -> tuple[bool, bool, int]:
    return not row.fits, not row.runs, row.makespan if row.fits else max(row.peaks)
