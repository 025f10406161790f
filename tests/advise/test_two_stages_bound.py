"""Bounds of all partitions where a device holds two stages, against the oracle and by hand."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from pipesat.advise.bounds import shape_bound
from pipesat.advise.question import Question
from pipesat.core.errors import BadInput, Infeasible
from pipesat.layers.layers_file import parse_layers
from pipesat.layers.pipeline import Pipeline, link_delay
from pipesat.schedule.schedule import Objective
from tests.oracle.plan_claims import random_case
from tests.oracle.plans import Case
from tests.support.plans import entry, layers_of

OBJECTIVES: dict[str, Objective] = {"makespan": "makespan", "span": "span"}


def compared(seed: int) -> str:
    """Hold the bound of a small case against the least value of all its problems."""
    draw = random.Random(seed)
    placement, recompute = draw.choice(["vee", "loop"]), draw.choice(["never", "choose", "choose"])
    drawn = random_case(seed, placement, recompute)
    case: Case = replace(drawn, known={}, microbatches=draw.randint(2, 3))
    if None in case.capacities:
        return "unlimited"
    shape = Pipeline(
        devices=case.devices,
        microbatches=case.microbatches,
        placement=placement,  # type: ignore[arg-type]
        memory=case.capacities,
        delay=link_delay(case.latency, case.bandwidth),
    )
    layers = Question(parse_layers(case.document), shape, choice=recompute).own  # type: ignore[arg-type]
    best = case.best(case.shapes[0])
    try:
        bound = shape_bound(layers, shape, OBJECTIVES[case.objective])
    except (BadInput, Infeasible):
        return "impossible" if best is None else f"seed {seed}: {best} is possible"
    if best is None:
        return "impossible"
    if bound.value > best:
        return f"seed {seed}: {bound} but {best} is possible"
    return "equal" if bound.value == best else "below"


@pytest.mark.slow
def test_no_bound_is_above_the_best_of_all_partitions() -> None:
    found = Counter(compared(seed) for seed in range(24))
    assert not [text for text in found if text.startswith("seed")]
    assert found["equal"] + found["below"] > 7


@pytest.mark.parametrize("placement", ["vee", "loop"])
def test_little_memory_raises_the_bound_above_the_load(placement: str) -> None:
    """Two devices of two layers of F 1 and BW 2, which hold 1 each where 2 fit.

    A microbatch is away for 12 (4 F, 4 BW), so the load of 3 (2 F + 2 BW) = 18 cannot be reached.
    """
    layer = entry(1, 1, 1, 1) | {"fused": True}
    layers = layers_of([layer] * 4)
    shape = Pipeline(devices=2, microbatches=3, placement=placement, memory=2)  # type: ignore[arg-type]
    document = {"layers": [{**layer, "name": f"layer {k}"} for k in range(4)]}
    case = Case(document, 2, 3, placement, capacities=[2, 2])
    best = case.best(case.shapes[0])
    assert best is not None
    assert 18 < shape_bound(layers, shape, "makespan").value <= best
