"""Overlapped cells as one action: a function of ours for torch's ``OVERLAP_F_B``.

Stock torch runs the members of a cell in turn, each as soon as its own input is there. Here the
cell begins when the inputs of both are there and is one action to whoever listens; its members are
computed inside of it. This is the place where a training system would run both on streams of their
own.
"""

from __future__ import annotations

import importlib
from typing import Any

from pipesat.export.torch.read import rows_of_csv
from pipesat.export.torch.tokens import Action, cell_text, parse_cell
from pipesat.runtime.stages import Around
from pipesat.runtime.torch_api import RUNTIME, SCHEDULES, TorchApi, require, require_methods

_METHODS = {
    "register_custom_function": set[str](),
    "_maybe_compute_loss": set[str](),
    "_maybe_get_loss": set[str](),
}
_ATTRIBUTES = ("_stages", "_n_microbatches", "fwd_recv_ops", "bwd_recv_ops", "backward_counter")
_STAGE_METHODS = {
    "forward_one_chunk": {"save_forward_output"},
    "backward_one_chunk": {"loss", "full_backward", "last_backward"},
    "set_local_fwd_input": set[str](),
    "set_local_bwd_input": set[str](),
    "get_local_bwd_output": set[str](),
}


def has_overlapped_cells(csv: str) -> bool:
    """Whether an order in torch's CSV has a cell of several actions."""
    return any(len(cell) > 1 for row in rows_of_csv(csv, "torch csv") for cell in row)


def register_overlap(api: TorchApi, runtime: Any, around: Around) -> None:
    """Let ``runtime`` compute every overlapped cell of an F and a B inside ``around(its text)``.

    Raises
    ------
    BadInput
        If this torch lacks something of what that takes.
    """
    schedules = importlib.import_module(SCHEDULES)
    require_methods(api.version, type(runtime), RUNTIME, _METHODS)
    require_methods(api.version, api.stage, "PipelineStage", _STAGE_METHODS)
    for name in _ATTRIBUTES:
        require(api.version, runtime, name, RUNTIME)
    for name in ("OVERLAP_F_B", "_wait_batch_p2p"):
        require(api.version, schedules, name, SCHEDULES)

    def receive(received: dict[tuple[int, int], Any], action: Action) -> None:
        works = received.pop((action.stage, action.microbatch), None)
        if works is not None:  # nothing comes to a route's ends, or from a stage of this rank
            schedules._wait_batch_p2p(works)

    def overlapped(action: Any, context: Any) -> None:
        forward, backward = _members(action)
        stages = {stage.stage_index: stage for stage in runtime._stages}
        receive(runtime.fwd_recv_ops, forward)
        receive(runtime.bwd_recv_ops, backward)
        with around(cell_text((forward, backward))):
            _compute_forward(runtime, stages, forward, context)
            _compute_backward(runtime, stages, backward)

    runtime.register_custom_function(schedules.OVERLAP_F_B, overlapped)


def _members(action: Any) -> tuple[Action, Action]:
    """Return the F and the B of one of torch's overlapped actions, as an export writes them."""
    forward, backward = (parse_cell(str(member)) for member in action.sub_actions)
    if forward is None or backward is None:
        raise ValueError(f"{action} is not an overlapped pair")
    return forward[0], backward[0]


def _compute_forward(runtime: Any, stages: dict[int, Any], action: Action, context: Any) -> None:
    stage, microbatch = stages[action.stage], action.microbatch
    output = stage.forward_one_chunk(
        microbatch,
        context.arg_mbs[microbatch],
        context.kwarg_mbs[microbatch],
        save_forward_output=False,
    )
    runtime._maybe_compute_loss(stage, output, context.target_mbs, microbatch)
    if (after := stages.get(action.stage + 1)) is not None:
        after.set_local_fwd_input(output, microbatch)


def _compute_backward(runtime: Any, stages: dict[int, Any], action: Action) -> None:
    stage, microbatch = stages[action.stage], action.microbatch
    loss = runtime._maybe_get_loss(stage, microbatch)
    runtime.backward_counter[action.stage] += 1
    stage.backward_one_chunk(
        microbatch,
        loss=loss,
        full_backward=True,
        last_backward=runtime.backward_counter[action.stage] == runtime._n_microbatches,
    )
    if (before := stages.get(action.stage - 1)) is not None:
        before.set_local_bwd_input(stage.get_local_bwd_output(microbatch), microbatch)
