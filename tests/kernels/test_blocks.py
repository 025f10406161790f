"""Compiled building blocks and refitting against their definitions, op for op."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from pipesat.heuristics.controllable_memory import blocks, half_block, least_block
from pipesat.heuristics.one_f_one_b_v import pulled_ahead, whole_block
from pipesat.heuristics.shared.building_blocks import order_by_block
from pipesat.kernels.refitting import refitted
from pipesat.problem.geometry import ranks_of
from pipesat.schedule.arrays_of import arrays_of, order_of
from tests.oracle.kernels import building_blocks, refit
from tests.support.problems import of


@pytest.mark.parametrize("seed", range(16))
def test_the_same_orders_as_by_definition(seed: int) -> None:
    chance = Random(seed)
    more = {"devices": (1, 7), "stages": 14, "microbatches": (1, 23), "ops": 10**4}
    more |= {"shapes": ("V",), "memory": ("none",), "held": 0.8, "zeros": (0.0, 0.2)}
    problem = of("plain", seed, **more, backwards=("split", "split", "fused", "either"))
    ranks, arrays = ranks_of(problem, "vee"), arrays_of(problem)
    p = len(ranks)
    allowed = [[seed % 4] * p, [chance.randint(0, 2 * p) for _ in range(p)]][seed % 2]
    assert pulled_ahead(problem, allowed).order == building_blocks.order_pulled_ahead(
        problem, ranks, whole_block(p), allowed
    )
    found = [*blocks(problem, ranks, [10**6] * p)]
    some = [block.tolist() for block in chance.sample(found, min(4, len(found)))]
    for block in [half_block(p), least_block(p), *some]:
        codes = order_by_block(problem, ranks, block)
        order = order_of(problem, arrays, codes)
        assert order == building_blocks.order_by_block(problem, ranks, block)
        for patience in (0.25, 1.0):
            slack = [chance.randint(0, 12 * p) for _ in range(p)]
            made = refitted(arrays._replace(slack=np.array(slack)), codes, patience)
            again = order_of(problem, arrays, made.order), made.end, made.fits
            assert again == refit.refitted(problem, order, slack, patience)
