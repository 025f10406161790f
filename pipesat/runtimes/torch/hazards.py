"""What the user of an order for torch has to know: what was changed, costs, and can go wrong.

torch looks up the weights of a split backward when its I starts (``stage_backward_input`` in
``torch.distributed.pipelining._backward``), among ``stage.submod.parameters()``. The graph has
others if FSDP has resharded a module since its forward: that microbatch's gradients of them are
lost without an error. A whole backward is autograd's own and loses none; so is the first stage's W.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from pipesat.core.amounts import time_text
from pipesat.core.claims import against
from pipesat.core.torch_releases import NEWEST, Release
from pipesat.problem.ops import members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, inputs_of
from pipesat.runtimes.options import loader_for
from pipesat.runtimes.torch.adapt import Adapted
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.schedule import Order, Schedule, ops_in, pairs_in
from pipesat.schedule.summary import peak_text
from pipesat.schedule.timing import linearize

SUFFIX: Final = ".hazards.txt"


def hazards(
    problem: Problem, schedule: Schedule, releases: Sequence[Release] = (NEWEST,)
) -> Iterator[str]:
    """Yield the hazards that this order has in releases' pipeline runtimes, worst first.

    What split backwards lose, they lose without an error.
    """
    split, route = split_in(problem, schedule), problem.routes[0].stages
    said, loader = partial(time_text, unit=problem.time_unit), loader_for(problem)
    pairs = pairs_in(schedule.order) > 0
    stock = said(makespan_in_turn(problem, schedule.order)) if pairs else ""
    turn = any(problem.stages[a].device == problem.stages[b].device for a, b in pairwise(route))
    found = (
        (
            split.any,
            "A split backward loses the gradients of all weights that FSDP has resharded since "
            "its forward, of some or all microbatches and without an error: torch looks "
            "weights up when I starts, and finds others. Use "
            "fully_shard(..., reshard_after_forward=False) for every module; the files for "
            "torchtitan and NeMo AutoModel do.",
        ),
        (
            split.last,
            "It splits the last stage's backward: the loss must not reshard a module of that "
            "stage either. torchtitan's ChunkedLossWrapper does (from 0.3.0, the default of its "
            "Llama 3), and the final norm is never trained. The Python file for torchtitan takes "
            "the loss out of the wrapper: one microbatch's logits are then held whole. To keep "
            'the wrapper, solve with "backward": "fused" in the last stage.',
        ),
        (
            split.any,
            "It splits backwards: in torch's file I is the backward for the input (B elsewhere), W "
            "for the weights, and B both at once (BW elsewhere). Do not combine it with activation "
            "checkpointing (W then recomputes per parameter group; torchtitan issue 773) or "
            "torch.compile (I and W each cost about a whole backward; pytorch issue 161904). "
            "torchtitan checkpoints by "
            'default: switch it off, or solve with stages that say "backward": "fused".',
        ),
        (
            split.any and schedule.modes,
            "The .modes.json beside it recomputes microbatches with whole backwards alone, "
            "which is safe: run it by pipesat's MemoryModes (docs/memory.md), and switch off "
            "any other checkpointing.",
        ),
        (
            split.first,
            "The first stage may not fuse its backward here, so its I and W are written as "
            "they are; torch does nothing in that I and the whole backward in W.",
        ),
        (
            split.any,
            "Frozen stages first: the one behind them trains nothing if its backward is split, "
            "without an error, as torch finds weights on the way to an input's gradient. Solve "
            'with "backward": "fused" in the first stage that is trained.',
        ),
        (
            split.any,
            "DDP does not reduce gradients of split backwards (pytorch issue 144530): use FSDP. "
            "register_post_accumulate_grad_hook is never called for them either.",
        ),
        (
            pairs,
            "Overlapped pairs run their members in turn unless a function is registered for "
            f"OVERLAP_F_B: makespan {stock} then, "
            f"{said(schedule.makespan)} only if they overlap as predicted.",
        ),
        (
            loader.schedule_name is None,
            f"torchtitan and NeMo AutoModel cannot load it: {loader.reason}.",
        ),
        (
            loader.schedule_name is not None,
            f'torchtitan and NeMo AutoModel: set the schedule name to "{loader.schedule_name}" '
            f"({loader.reason}); any other name gives another placement, and the run hangs.",
        ),
        (
            turn and any(release.eval_fails for release in releases),
            "schedule.eval() fails on a rank that holds two neighbouring stages: evaluate with the "
            "stages' modules, or with another schedule.",
        ),
        (
            any(release.eval_divides for release in releases),
            "schedule.eval() divides every gradient that is there by the number of microbatches: "
            f"evaluate after the optimizer's step. torch {NEWEST.version} does not.",
        ),
        (
            True,
            "Do not set defer_pp_recv=True: it silently gives wrong gradients with several stages.",
        ),
        (
            True,
            "Do not pass device_id to init_process_group: all sends of a rank then run one by one.",
        ),
        (
            True,
            "Pass stages in ascending order on each rank, equally shaped microbatches, and "
            f"n_microbatches={problem.routes[0].microbatches}.",
        ),
        (
            True,
            "With weights shared between stages, or several step() calls per zero_grad(), use "
            "scale_grads=False and scale the loss: torch scales shared or old gradients twice.",
        ),
    )
    return (text for there, text in found if there)


def hazards_text(
    problem: Problem,
    schedule: Schedule,
    remark: str = "",
    releases: Sequence[Release] = (NEWEST,),
) -> str:
    """Return the list as a text file: what its user was told besides, and the releases first."""
    names = " and ".join(map(str, releases))
    told = [*([remark] if remark else []), f"This is for {names}: another release has others."]
    return "".join(f"- {hazard}\n" for hazard in [*told, *hazards(problem, schedule, releases)])


class SplitBackwards(NamedTuple):
    """Whether backwards of any stage are split, of the first, of the last."""

    any: bool
    first: bool
    last: bool


def split_in(problem: Problem, schedule: Schedule) -> SplitBackwards:
    """Say which backwards a schedule splits."""
    route = problem.routes[0].stages
    stages = {op.stage for op in ops_in(schedule.order) if op.kind == "B"}
    return SplitBackwards(bool(stages), route[0] in stages, route[-1] in stages)


def makespan_in_turn(problem: Problem, order: Order) -> int:
    """Makespan of an order whose overlapped cells run as in torch's runtime without an override.

    The members of a cell run one after the other, each as soon as its own input is there; both
    results are sent after the cell (torch puts its sends behind it), so what waits for the forward
    waits for the whole cell.
    """
    sequence = linearize(problem, order)
    free = [0] * len(problem.devices)
    ends: list[int] = []
    for device, item, inputs in zip(sequence.device, sequence.item, sequence.inputs, strict=True):
        arrivals = iter([ends[source] + delay for source, delay in inputs])
        end = free[device]
        for op in members(item):
            arrival = max((next(arrivals) for _ in inputs_of(problem, op)), default=0)
            end = max(end, arrival) + duration(problem, op)
        free[device] = end
        ends.append(end)
    return max(ends, default=0)


_STAGES_SHOWN = 8


def notes(problem: Problem, schedule: Schedule, adapted: Adapted) -> Iterator[str]:
    """Yield each change of a schedule for torch, then what is left of its makespan.

    Of an order with overlapped pairs both makespans are named, changed or not: as stock torch runs
    it, and if the pairs overlap.
    """
    yield from adapted.changes
    stages = problem.routes[0].stages
    if list(stages) != sorted(stages):
        names = ", ".join(
            f"{stage} is {number}" for number, stage in enumerate(stages[:_STAGES_SHOWN])
        )
        more = ", ..." if len(stages) > _STAGES_SHOWN else ""
        yield f"stages renumbered along the route: {names}{more}"
    now = adapted.schedule
    pairs = pairs_in(now.order)
    if not adapted.changes and not pairs:
        return
    said = partial(time_text, unit=problem.time_unit)
    other = against(now.makespan, schedule.makespan, "this schedule")
    planned = f"makespan {said(now.makespan)}, {other}"
    if pairs:
        stock = said(makespan_in_turn(adapted.problem, now.order))
        planned = (
            f"makespan {stock} in stock torch, which runs the members of its overlapped pairs "
            f"({pairs}) in turn; {planned} only with a function of yours for OVERLAP_F_B that "
            "overlaps them"
        )
    peak = peak_text(adapted.problem, peak_memory(adapted.problem, now))
    yield f"torch's order: {planned}{peak and f'; peak memory {peak}'}"
