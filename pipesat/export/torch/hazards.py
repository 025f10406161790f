"""What can go wrong with an exported order in a training run: a short list, beside each CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pipesat.core.ops import Pair
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.export.torch.in_turn import makespan_in_turn
from pipesat.export.torch.loaders import loader_for
from pipesat.export.torch.splits import lost_gradients, split_in

SUFFIX: Final = ".hazards.txt"


def hazards(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Yield the hazards that this order has in torch 2.13's pipeline runtime, worst first."""
    items = [item for row in schedule.order for item in row]
    split = split_in(problem, schedule)
    yield from lost_gradients(split)
    if split.any:
        yield (
            "It splits backwards: in torch's file I is the backward for the input (B elsewhere), W "
            "for the weights, and B both at once (BW elsewhere). Do not combine it with activation "
            "checkpointing (W then recomputes per parameter group; torchtitan issue 773) or "
            "torch.compile (I and W each cost about a whole backward; pytorch issue 161904). "
            "torchtitan checkpoints by "
            'default: switch it off, or solve with stages that say "backward": "fused".'
        )
        if split.first:
            yield (
                "The first stage may not fuse its backward here, so its I and W are written as "
                "they are; torch does nothing in that I and the whole backward in W."
            )
        yield "DDP does not reduce gradients of split backwards (pytorch issue 144530): use FSDP."
    if any(isinstance(item, Pair) for item in items):
        yield (
            "Overlapped pairs run their members in turn unless a function is registered for "
            f"OVERLAP_F_B: makespan {makespan_in_turn(problem, schedule.order)} then, "
            f"{schedule.makespan} only if they overlap as predicted."
        )
    loader = loader_for(problem)
    if loader.schedule_name is None:
        yield f"torchtitan and NeMo AutoModel cannot load it: {loader.reason}."
    else:
        yield (
            f'torchtitan and NeMo AutoModel: set the schedule name to "{loader.schedule_name}" '
            f"({loader.reason}); any other name gives another placement, and the run hangs."
        )
    yield "Do not set defer_pp_recv=True: it silently gives wrong gradients with several stages."
    yield "Do not pass device_id to init_process_group: all sends of a rank then run one by one."
    yield (
        "Pass stages in ascending order on each rank, equally shaped microbatches, and "
        f"n_microbatches={problem.routes[0].microbatches}."
    )
    yield (
        "With weights shared between stages, or several step() calls per zero_grad(), use "
        "scale_grads=False and scale the loss: torch scales shared or old gradients twice."
    )


def hazards_text(problem: Problem, schedule: Schedule, remark: str = "") -> str:
    """Return the list as a text file, after what its user was told besides."""
    told = [remark] if remark else []
    return "".join(f"- {hazard}\n" for hazard in [*told, *hazards(problem, schedule)])
