"""Pairs of ops from the parts of a layer on streams: what a stage takes, alone and in a pair.

A mixture of experts spends much of its time in communication, which another microbatch's compute
can hide. Given the parts of one transformer layer (:mod:`pipesat.parts`), a stage of n such layers
has the least times of its parts, F and BW of two stages of a device also together. Layers that are
not of these parts (an embedding, a head) run by themselves, before or after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil
from typing import Final

from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS, Kind
from pipesat.core.problem import Problem
from pipesat.core.progress import doing
from pipesat.files.folder import changed_problem
from pipesat.layers.layer import Layer, Layers
from pipesat.parts.parts import Parts
from pipesat.placement.documents import Costs

_LIMIT: Final = 1.0  # deterministic seconds for the order of one op's or pair's parts


def alone(parts: Parts, count: int, kind: Kind) -> int:
    """Time of an op of so many layers."""
    if kind == "BW":
        in_turn = alone(parts, count, "B") + alone(parts, count, "W")
        return min(in_turn, _least(parts, (count, "BW")))
    return _least(parts, (count, kind))


def together(parts: Parts, forwards: int, backwards: int) -> int:
    """Time of a pair: F of so many layers, BW of so many."""
    in_turn = alone(parts, forwards, "F") + alone(parts, backwards, "BW")
    return min(in_turn, _least(parts, (forwards, "F"), (backwards, "BW")))


@cache
def _least(parts: Parts, *ops: tuple[int, Kind]) -> int:
    """Length of the shortest order found; the same one whenever it is asked for."""
    from pipesat.solver.job_shop import least_time
    from pipesat.solver.run.clock import Clock

    chunks = [(replace(parts.chunks[0], repeat=count), kind) for count, kind in ops if count]
    if not chunks:
        return 0
    clock = Clock(_LIMIT, deterministic=True)
    with doing("times of ops and pairs from their parts"):
        return least_time(len(parts.streams), chunks, clock=clock).plan.length


def require_one_chunk(parts: Parts) -> None:
    """Pass if all layers have the same parts: a split could not tell several kinds apart."""
    if len(parts.chunks) != 1:
        expected = "expected one chunk: advise cuts transformer layers that are alike"
        raise BadInput(expected, source=parts.source, where="chunks", value=len(parts.chunks))


def layers_of_parts(parts: Parts) -> Layers:
    """Return the layers of all stages, which hold no memory: parts do not say what they hold."""
    require_one_chunk(parts)
    (chunk,) = parts.chunks
    count = chunk.repeat * len(parts.stages)
    blocks = [Layer(f"{chunk.name} {number}", Costs(0, 0, 0)) for number in range(count)]
    return with_times(Layers(tuple(blocks), name=chunk.name, time_unit=parts.time_unit), parts)


def with_times(layers: Layers, parts: Parts) -> Layers:
    """Return layers whose transformer layers take what their parts do, and never recompute."""
    if layers.time_unit and parts.time_unit and layers.time_unit != parts.time_unit:
        expected = f'the layers have "{layers.time_unit}"'
        raise BadInput(expected, source=parts.source, where="time_unit", value=parts.time_unit)
    if all(layer.role != "block" for layer in layers.layers):
        raise BadInput("no transformer layer that could have these parts", source=parts.source)
    times = {kind: alone(parts, 1, kind) for kind in KINDS}
    return replace(
        layers,
        time_unit=layers.time_unit or parts.time_unit,
        layers=tuple(
            replace(layer, costs=replace(layer.costs, **times), recomputed=None)
            if layer.role == "block"
            else replace(layer, recomputed=None)
            for layer in layers.layers
        ),
    )


def with_pairs(
    problem: Problem, layers: Layers, partition: Sequence[range], parts: Parts
) -> Problem:
    """Return a split's problem with the times of its stages' parts, and of F with BW."""
    blocks = [sum(layers.layers[k].role == "block" for k in part) for part in partition]

    def others(stage: int, kind: Kind) -> int:
        cut = [layers.layers[k] for k in partition[stage]]
        return sum(layer.amount(kind) for layer in cut if layer.role != "block")

    stages: list[dict[str, int]] = [
        {kind: alone(parts, count, kind) + others(stage, kind) for kind in KINDS}
        for stage, count in enumerate(blocks)
    ]
    pairs = []
    for one, two in product(range(len(blocks)), repeat=2):
        homes = {problem.stages[stage].device for stage in (one, two)}
        if len(homes) > 1 or not blocks[one] or not blocks[two]:
            continue
        time = together(parts, blocks[one], blocks[two]) + others(one, "F") + others(two, "BW")
        if time < stages[one]["F"] + stages[two]["BW"]:
            pairs.append({"ops": [f"{one}F", f"{two}BW"], "time": time})
    source = f"problem with the times of {parts.source}"
    overlap = {"pairs": pairs} if pairs else problem.document.get("overlap")
    return changed_problem(problem, source, stages=stages, overlap=overlap)


OFFLOAD: Final = "offload"
WHY_NOT: Final = "no runtime copies beside its ops yet: docs/memory.md has what runs"


def with_offload(
    problem: Problem, layers: Layers, partition: Sequence[range], rate: Fraction
) -> Problem:
    """Return a split's problem whose stages may offload, at so much memory per time unit."""
    stages = list[dict[str, object]]()
    for part in partition:
        held = sum(layers.layers[k].amount("held_after_F") for k in part)
        stays = min(
            held, sum(layers.layers[k].amount("held_after_F", recompute=True) for k in part)
        )
        copy = ceil((held - stays) / rate)
        mode = {"name": OFFLOAD, "offload": {"out": copy, "in": copy, "held": stays}}
        stages.append({"modes": [mode]} if held > stays else {})
    return changed_problem(problem, "problem of layers", stages=stages)
