"""Schedules from building blocks (Qi et al., "Pipeline Parallelism with Controllable Memory").

NeurIPS 2024, section 3: lay out the ops of one microbatch (the building block), repeat it once per
period, squeeze out what stands idle at both ends. What a microbatch holds, and for how long, is
visible in the block: its lifespans divided by the period are the peak memory.

Here a rank has two chunks in a V and every op takes one slot, so the period is six slots. A block
names the slots of F and B; W takes the free slots, the oldest first. Four *series* of slots, one
slot per microbatch, describe a rank: F of chunk 0, F of chunk 1, B of chunk 1, B of chunk 0, in
the order in which a microbatch passes them; two neighbouring series meet at the V's turning points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pipesat.kernels.arrays import Coded
from pipesat.kernels.blocks import VShape
from pipesat.problem.geometry import Ranks
from pipesat.problem.ops import KINDS, Kind
from pipesat.problem.problem import Problem
from pipesat.schedule.arrays_of import arrays_of

Slots: TypeAlias = tuple[int, int, int, int]
"""Of one microbatch's F0, F1, B1 and B0 on a rank; of longer ops, their last slots."""


def order_by_block(problem: Problem, ranks: Ranks, block: Sequence[Slots]) -> Coded:
    """Repeat a block, by rank, once per microbatch, reorder both ends, squeeze.

    No times are looked at.
    """
    import numpy as np  # importing pipesat stays fast

    from pipesat.kernels.blocks import block_order

    return block_order(v_shape_of(problem, ranks, whole=False), np.array(block, np.int64))


def v_shape_of(problem: Problem, ranks: Ranks, whole: bool) -> VShape:
    """Return the ranks of a V for loops, with backwards that are fused or split where they may."""
    import numpy as np

    from pipesat.kernels.blocks import VShape

    arrays = arrays_of(problem)

    def first(stage: int, forward: bool) -> int:
        fused = problem.stages[stage].may_fuse if whole else not problem.stages[stage].may_split
        kind: Kind = "F" if forward else "BW" if fused else "B"
        return int(arrays.first_cell[stage]) << arrays.shift | KINDS.index(kind)

    return VShape(
        device=np.array(ranks.device, np.int64),
        first=np.array(
            [
                [first(zero, True), first(one, True), first(one, False), first(zero, False)]
                for zero, one in ranks.stages
            ],
            np.int64,
        ),
        microbatches=problem.routes[0].microbatches,
        shift=arrays.shift,
    )
