"""Partitions to begin with: what exact programmes find best under stand-ins.

Every stand-in is a load that devices should share evenly and a number of microbatches in flight
whose activations must fit. None of them is the true objective; the search looks at what comes of
each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import Final, TypeAlias

from pipesat.advise.bounds import flags_below, stage_cost
from pipesat.advise.candidates import Flags, usual_in_flight
from pipesat.advise.cut_terms import cheapest, unpaired
from pipesat.advise.question import Question
from pipesat.advise.splits import balanced_partition, even_partition
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.layers.devices import smallest_largest
from pipesat.layers.layer import Layers
from pipesat.layers.linear_costs import LineMaker, Weights, loads, makespan_lines
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import cut_masks, same_stage
from pipesat.problem.split import best_split
from pipesat.schedule.schedule import Objective

_IN_FLIGHT: Final = tuple(map(Fraction, ("1", "1/2", "2", "3/4", "1/4", "3/2")))
_RELIEF: Final = (102, 105, 110, 120)  # per cent that an end's load counts


Proposal: TypeAlias = tuple[tuple[range, ...], Flags, str]
"""A partition, which of its stages might recompute, and who says so. What becomes of the flags is
for the question to say."""


def proposals(question: Question, shape: Pipeline) -> Iterator[Proposal]:
    """Yield partitions of a shape, the usually best ones first; some may be equal."""
    layers = question.own
    for name, partition in _plain(layers, shape):
        for flags in question.first(shape, partition):
            yield partition, flags, name
    if shape.stages == shape.devices:
        yield from _least_closed_form(layers, shape, question.objective)
    for name, lines, flying in _stand_ins(shape):
        for recompute in question.of_splits:
            with contextlib.suppress(Infeasible, NotApplicable):
                split = smallest_largest(
                    layers, shape, lines=lines, in_flight=flying, recompute=recompute
                )
                yield split.partition, split.recompute, name


def _plain(layers: Layers, shape: Pipeline) -> Iterator[tuple[str, tuple[range, ...]]]:
    """Partitions that come without a choice of recomputation."""
    yield "cost-balanced split", balanced_partition(layers, shape)
    with contextlib.suppress(BadInput):
        yield "even split", even_partition(layers, shape)
    if shape.stages != shape.devices:
        with contextlib.suppress(Infeasible, NotApplicable):
            least = cheapest(layers)
            yield "least load", smallest_largest(least, shape, lines=makespan_lines).partition


def _least_closed_form(layers: Layers, shape: Pipeline, objective: Objective) -> Iterator[Proposal]:
    """The partition of a chain that closed forms like best, with the variants they like best."""
    masks = same_stage(layers, cut_masks(layers, shape.stages))
    cost = stage_cost(unpaired(layers, shape), shape, objective)
    found = best_split(cost, len(layers), shape.stages, masks=masks)
    if found is not None:
        allowed = flags_below(layers, shape, objective, found.partition, found.value + 1)
        flags = tuple(bool(stage) and stage[0] for stage in allowed)
        yield found.partition, flags, "least closed form"


def _stand_ins(shape: Pipeline) -> Iterator[tuple[str, LineMaker, Sequence[int] | None]]:
    usual = usual_in_flight(shape)
    for share in _IN_FLIGHT:
        flying = [max(1, min(shape.microbatches, ceil(share * count))) for count in usual]
        yield f"balanced, {float(share):g} x in flight", loads(), flying
    yield "balanced, one in flight", loads(), None
    for name, lines in _other_loads(shape):
        yield name, lines, usual
        yield f"{name}, one in flight", lines, None


def _other_loads(shape: Pipeline) -> Iterator[tuple[str, LineMaker]]:
    """Loads that count some ops or some stages more than others."""
    yield "balanced F + B", loads({"F": 1, "B": 1})
    last = shape.stages - 1
    for percent in _RELIEF:
        for name, ends in (("first", {0}), ("last", {last}), ("both ends", {0, last})):
            weights: list[Weights] = [
                dict.fromkeys(("F", "BW"), percent if s in ends else 100)
                for s in range(shape.stages)
            ]
            yield f"{percent - 100} % relief of {name}", loads(weights)
