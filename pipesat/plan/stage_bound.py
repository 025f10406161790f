"""What one stage of a chain costs the whole schedule at least, for every way to cut it at once.

The exact programme over cuts can minimise the closed forms of a device with one stage
(:mod:`pipesat.plan.cut_terms`), and its result bounds the schedules of *all* partitions.
"""

from __future__ import annotations

import numpy as np

from pipesat.core.arrays import Ints
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.schedule import Objective
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.split import FORBIDDEN, LARGEST_COST, StageCost
from pipesat.plan.cut_terms import Amounts, CutTerms, Part


def stage_bound(
    layers: Layers, pipeline: Pipeline, objective: Objective, around: Layers | None = None
) -> StageCost:
    """Cost of layers a to b - 1 as stage s of a chain: a bound on makespan or span.

    A stage that holds one microbatch more than its device has room for is forbidden.

    Parameters
    ----------
    layers
        The stage's own; they must not leave a choice of recomputation.
    around
        All others, with or without a choice; the same ones unless given.

    Raises
    ------
    NotApplicable
        Unless every device holds one stage, or with overlapped pairs.
    BadInput
        If sums would exceed 64 bits.
    """
    if pipeline.stages != pipeline.devices or pipeline.overlap is not None:
        raise NotApplicable("this bound is for one stage per device and no overlapped pairs")
    own, cuts = Amounts(layers, pipeline), CutTerms(around or layers, pipeline)
    if 8 * pipeline.microbatches * max(own.largest, int(cuts.static[-1])) >= LARGEST_COST:
        raise BadInput("the layers' sum is too large to add up exactly: choose a coarser unit")

    def cost(a: Ints, b: Ints, stage: int) -> Ints:
        part = Part(own, stage, *np.broadcast_arrays(a, b))
        bound, fits = cuts.bound([part], absolute=objective == "makespan")
        return np.where(fits, bound, FORBIDDEN)

    return cost
