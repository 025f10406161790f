"""Which backwards an order splits, and what a split one loses in torch.

torch 2.13 looks up the weights of a split backward when its I starts (``stage_backward_input`` in
``torch.distributed.pipelining._backward``), among ``stage.submod.parameters()``. The graph has
others if FSDP has resharded a module since its forward: that microbatch's gradients of them are
lost without an error. A whole backward is autograd's own and loses none; so is the first stage's W.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipesat.core.ops import members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule


class Split(NamedTuple):
    """Whether backwards of any stage are split, of the first, of the last."""

    any: bool
    first: bool
    last: bool


def split_in(problem: Problem, schedule: Schedule) -> Split:
    """Say which backwards a schedule splits."""
    route = problem.routes[0].stages
    stages = {
        op.stage for row in schedule.order for item in row for op in members(item) if op.kind == "B"
    }
    return Split(bool(stages), route[0] in stages, route[-1] in stages)


def lost_gradients(split: Split) -> Iterator[str]:
    """Yield the hazards of split backwards that train nothing, without an error."""
    if split.any:
        yield (
            "A split backward loses the gradients of all weights that FSDP has resharded since "
            "its forward, of some or all microbatches and without an error: torch 2.13 looks "
            "weights up when I starts, and finds others. Use "
            "fully_shard(..., reshard_after_forward=False) for every module; the files for "
            "torchtitan and NeMo AutoModel do."
        )
    if split.last:
        yield (
            "It splits the last stage's backward: the loss must not reshard a module of that "
            "stage either. torchtitan's ChunkedLossWrapper does (from 0.3.0, the default of its "
            "Llama 3), and the final norm is never trained. The Python file for torchtitan takes "
            "the loss out of the wrapper: one microbatch's logits are then held whole. To keep "
            'the wrapper, solve with "backward": "fused" in the last stage.'
        )
