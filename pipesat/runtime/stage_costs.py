"""Measuring F, B, W and BW of one stage, the way torch's pipeline runtime runs them."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from pipesat.core.errors import BadInput
from pipesat.profile.costs_file import samples_document
from pipesat.runtime.meters import Meter, OpClock, Reading

_BACKWARD = "torch.distributed.pipelining._backward"
_FUNCTIONS = ("stage_backward", "stage_backward_input", "stage_backward_weight")


Mark: TypeAlias = Callable[[], None]


class Backward(NamedTuple):
    """The functions with which torch's pipeline stages run their backwards."""

    whole: Callable[..., Any]
    of_input: Callable[..., Any]
    of_weight: Callable[..., Any]


def load_backward() -> Backward:
    """Import them (a private interface).

    Raises
    ------
    BadInput
        If this torch has them elsewhere, or not at all.
    """
    try:
        module = importlib.import_module(_BACKWARD)
        return Backward(*(getattr(module, name) for name in _FUNCTIONS))
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"torch {torch.__version__} lacks what splits a backward ({error}). Profiling was "
            "tested with torch 2.13"
        ) from None


@dataclass
class Subject:
    """One stage to be measured.

    Attributes
    ----------
    name
        For messages.
    x
        Its input: values, not a leaf of any graph.
    input_gradient
        Whether its input needs a gradient; the first stage's does not.
    loss_of
        Loss of the output, where the stage is the last.
    """

    name: str
    module: nn.Module
    x: Any
    input_gradient: bool
    loss_of: Callable[[Any], Any] | None

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        for parameter in self.parameters:  # as in training: from the second microbatch on
            parameter.grad = torch.zeros_like(parameter)
        self.output_gradient: Any = None

    def forward(self) -> tuple[Any, Any, Any]:
        """Run F; return input, output, and the tensor where the backward starts."""
        x = self.x.detach()
        if self.input_gradient:
            x.requires_grad_()
        output = self.module(x)
        return x, output, output if self.loss_of is None else self.loss_of(output)

    @property
    def starts(self) -> list[Any] | None:
        """Gradients to start from: of the output; none for a loss."""
        return None if self.loss_of is not None else [self.output_gradient]


@dataclass
class CostSamples:
    """Microseconds of every sample."""

    F: list[float]
    B: list[float]
    W: list[float]
    BW: list[float]


def measure(
    subject: Subject, backward: Backward, clock: OpClock, meter: Meter, *, samples: int, warmup: int
) -> dict[str, Any]:
    """Measure one stage; return what a profile's ``Costs`` have of times and held memory.

    Raises
    ------
    BadInput
        If a loss is not finite.
    """
    _, output, root = subject.forward()
    if subject.loss_of is None:
        subject.output_gradient = torch.randn_like(output)
    trains = root.requires_grad
    del output, root
    no_split = _why_not(subject, backward, trains)
    times = CostSamples([], [], [], [])
    gc.collect()
    gc.freeze()  # what is there now stays there: collecting after every sample gets cheap
    try:
        for number in range(warmup + samples):
            sample = _time_once(subject, backward, clock, trains=trains, split=not no_split)
            if number >= warmup:
                for kind, values in sample.items():
                    getattr(times, kind).extend(values)
        held = _memory(subject, backward, meter, trains=trains, split=not no_split)
    finally:
        gc.unfreeze()
        for parameter in subject.parameters:
            parameter.grad = None
    costs = {kind: samples_document(values) for kind, values in vars(times).items() if values}
    return costs | {"no_split": no_split} | held


def _why_not(subject: Subject, backward: Backward, trains: bool) -> str:
    """Say why the backward cannot be split, after trying; empty if it can."""
    if not trains:
        return "nothing in it or before it is trained"
    if not subject.input_gradient:
        return "its input needs no gradient, so nothing can be split off"
    try:
        x, output, root = subject.forward()
        _, groups = backward.of_input([root], subject.starts, [x], iter(subject.parameters))
        backward.of_weight(iter(subject.parameters), groups)
    except RuntimeError as error:
        cause = error.__cause__ or error
        if isinstance(cause, torch.OutOfMemoryError):
            raise
        return f"torch cannot split it: {str(cause).strip().splitlines()[0]}"
    del output
    return ""


def _time_once(
    subject: Subject, backward: Backward, clock: OpClock, *, trains: bool, split: bool
) -> dict[str, list[float]]:
    """Time one microbatch with its backward split, and one with it whole."""
    found: dict[str, list[float]] = {"F": [], "B": [], "W": [], "BW": []}
    if split:

        def ops(mark: Mark) -> Any:
            x, _, root = subject.forward()
            mark()
            _, groups = backward.of_input([root], subject.starts, [x], iter(subject.parameters))
            mark()
            backward.of_weight(iter(subject.parameters), groups)
            mark()
            return root

        for kind, duration in zip("FBW", _timed(subject, clock, ops), strict=True):
            found[kind].append(duration)
    forward, whole = _time_both(subject, backward, clock, trains=trains)
    found["F"].append(forward)
    found["BW"].append(whole)
    return found


def _timed(subject: Subject, clock: OpClock, ops: Callable[[Mark], Any]) -> list[float]:
    """Time ops that call for a mark after each and return where the backward starts."""
    durations = None
    while durations is None:
        clock.lead()
        marks = [clock.mark()]
        root = ops(lambda marks=marks: marks.append(clock.mark()))  # type: ignore[misc]
        durations = clock.durations(marks)
        _require_finite(subject, root)
        del root
        gc.collect()
    return durations


def _time_both(
    subject: Subject, backward: Backward, clock: OpClock, *, trains: bool
) -> tuple[float, float]:
    def ops(mark: Mark) -> Any:
        x, _, root = subject.forward()
        mark()
        if trains:
            run_whole(subject, backward, x, root)
        mark()
        return root

    forward, whole = _timed(subject, clock, ops)
    return forward, whole if trains else 0.0


def time_whole(subject: Subject, backward: Backward, clock: OpClock) -> float:
    """Return the microseconds of one whole backward, after its forward."""
    return _time_both(subject, backward, clock, trains=True)[1]


def run_whole(subject: Subject, backward: Backward, x: Any, root: Any) -> None:
    """Run a whole backward from the tensor where it starts."""
    start = None if subject.loss_of is not None else (subject.output_gradient,)
    backward.whole((root,), (None,) if start is None else start, [x])


def _require_finite(subject: Subject, root: Any) -> None:
    if subject.loss_of is not None and not bool(torch.isfinite(root.detach()).all()):
        raise BadInput(
            f"{subject.name}: the loss is {float(root.detach())}, expected a finite number: times "
            "of numbers that are none say little"
        )


def _memory(
    subject: Subject, backward: Backward, meter: Meter, *, trains: bool, split: bool
) -> dict[str, Any]:
    """Run each kind of op once more, metered.

    Not counted, because each is static memory: input, gradient of the output, parameters and their
    gradients. The input's gradient belongs to the receive buffers.
    """
    transient: dict[str, int] = {}
    held = {"held_after_F": 0, "held_after_B": 0}
    if split:
        with meter.op() as f:
            x, output, root = subject.forward()
        with meter.op() as b:
            groups = backward.of_input([root], subject.starts, [x], iter(subject.parameters))[1]
            x.grad = None
            if subject.loss_of is not None:
                del output  # the runtime lets the last stage's output go after B
        with meter.op() as w:
            backward.of_weight(iter(subject.parameters), groups)
        held = {"held_after_F": f.change, "held_after_B": f.change + b.change}
        during_b = max(held.values())
        transient["B"] = f.change + b.peak - during_b
        transient["W"] = w.peak
        del x, root, groups
        output = None
        gc.collect()
    with meter.op() as f:
        x, output, root = subject.forward()
    reading = Reading()
    if trains:
        with meter.op() as reading:
            run_whole(subject, backward, x, root)
    held["held_after_F"] = f.change
    transient |= {"F": f.peak - f.change, "BW": reading.peak}
    return {kind: max(amount, 0) for kind, amount in held.items()} | {
        "transient": {kind: max(amount, 0) for kind, amount in transient.items()}
    }


def parameters_of(modules: Sequence[nn.Module]) -> list[dict[str, Any]]:
    """Count the parameters of some layers, each once, by type and by whether they are trained."""
    counts: dict[tuple[str, bool], list[int]] = {}
    for parameter in {id(p): p for module in modules for p in module.parameters()}.values():
        key = (dtype_name(parameter.dtype), parameter.requires_grad)
        entry = counts.setdefault(key, [0, 0])
        entry[0] += parameter.numel()
        entry[1] += parameter.numel() * parameter.element_size()
    return [
        {"dtype": dtype, "elements": elements, "bytes": size, "trainable": trainable}
        for (dtype, trainable), (elements, size) in counts.items()
    ]


def dtype_name(dtype: Any) -> str:
    """``float32`` of ``torch.float32``."""
    return str(dtype).removeprefix("torch.")
