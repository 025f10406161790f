"""When every op of a step really ran: host clock on the CPU, events of the stream on CUDA.

torch wraps each action in ``record_function("PP:<action>")``, a global of its schedules module,
which is replaced here; the range of an action includes the wait for its input. Inside it,
:func:`reporting` calls when the input is there. An op ends with its range: the loss is part of the
last stage's forward. An overlapped cell is one action to whoever listens, see
:func:`register_overlap`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.export.torch.lint import Action, cell_text, parse_cell
from pipesat.runtime.meters import HostClock
from pipesat.runtime.torch_api import RUNTIME, SCHEDULES, TorchApi, require, require_methods

Around: TypeAlias = Callable[[str], AbstractContextManager[Any]]
"""Called with an action in torch's letters (``0F3``); entered before it is computed."""


def reporting(base: Any, around: Around) -> Any:
    """Derive a stage class whose every action is computed inside ``around(action)``.

    torch has waited for the action's input by then. The loss of the last stage's forward, and
    handing over to a stage on the same rank, come after it.
    """

    class ReportingStage(base):
        def forward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}F{chunk}"):
                output = super().forward_one_chunk(chunk, *args, **kwargs)
                self.shapes = _same_shapes(self, chunk, output)
            return output

        def backward_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            letter = "B" if kwargs.get("full_backward", True) else "I"
            with around(f"{self.stage_index}{letter}{chunk}"):
                return super().backward_one_chunk(chunk, *args, **kwargs)

        def backward_weight_one_chunk(self, chunk: int, *args: Any, **kwargs: Any) -> Any:
            with around(f"{self.stage_index}W{chunk}"):
                return super().backward_weight_one_chunk(chunk, *args, **kwargs)

    return ReportingStage


def _same_shapes(stage: Any, microbatch: int, output: Any) -> list[Any]:
    """Return the output's shapes if they are those of the outputs before.

    torch receives into buffers that were made for the first microbatch, and would fill a part of
    one without a word.
    """
    tensors = output if isinstance(output, tuple | list) else [output]
    shapes = [tuple(getattr(tensor, "shape", ())) for tensor in tensors]
    expected: list[Any] = getattr(stage, "shapes", shapes)
    if shapes != expected:
        raise BadInput(
            f"stage {stage.stage_index} returns shapes {shapes} for microbatch {microbatch}, "
            f"expected {expected} as before: all microbatches need the same"
        )
    return shapes


_PREFIX = "PP:"


class Recorder:
    """The actions of one rank in one step after the other.

    With ``counts_cores``, also how long their thread was on a core: torch computes on the CPU,
    backwards included, in the thread that asks for it.
    """

    def __init__(self, clock: HostClock, *, counts_cores: bool) -> None:
        self.clock = clock
        self.counts_cores = counts_cores
        self.restart()

    def restart(self) -> None:
        """Forget what was recorded and begin a step."""
        self.clock.begin()
        self.ops: list[list[Any]] = []  # action, waiting since, start, end
        self.on_core: list[int | None] = []  # per op, ns of its thread
        self.transfers: list[tuple[str, Any, Any]] = []
        self.waiting_since: Any = None
        self.running = False

    def begin(self, action: str) -> None:
        """Note that an action's input is there and it is about to be computed."""
        now = self.clock.mark()
        if self.running:  # the member before it of an overlapped cell
            self._end(now)
        self.ops.append([action, self.waiting_since, now, None])
        self.running = True
        self.core_time = time.thread_time_ns()

    def _end(self, now: Any) -> None:
        self.ops[-1][3] = now
        self.on_core.append(time.thread_time_ns() - self.core_time if self.counts_cores else None)
        self.waiting_since, self.running = now, False

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Stand in for torch's ``record_function``."""
        return self._action(name) if name.startswith(_PREFIX) else nullcontext()

    @contextmanager
    def _action(self, name: str) -> Iterator[None]:
        entered = self.waiting_since = self.clock.mark()
        yield
        now = self.clock.mark()
        if self.running:
            self._end(now)
        elif self.clock.calls_block and ("SEND" in name or "RECV" in name):
            self.transfers.append((name.removeprefix(_PREFIX), entered, now))

    def document(self) -> dict[str, list[list[Any]]]:
        """Return what ran, in ns.

        ``ops`` as ``[op, since, start, end, on a core]``, ``transfers`` as ``[name, start, end]``.
        """
        at = self.clock.nanoseconds
        return {
            "ops": [
                [name, *map(at, stamps), core]
                for (name, *stamps), core in zip(self.ops, self.on_core, strict=True)
            ],
            "transfers": [[name, at(start), at(end)] for name, start, end in self.transfers],
        }


def listen(recorder: Recorder) -> None:
    """Make torch's pipeline runtime tell a recorder of every action, in this process."""
    schedules = importlib.import_module("torch.distributed.pipelining.schedules")
    schedules.record_function = recorder.range  # type: ignore[attr-defined]


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


def register_overlap(api: TorchApi, runtime: Any, around: Around) -> None:
    """Let ``runtime`` compute every overlapped cell of an F and a B inside ``around(its text)``."""
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
