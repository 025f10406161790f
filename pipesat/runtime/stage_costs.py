"""Measuring F, B, W and BW of one stage, the way torch's pipeline runtime runs them."""

from __future__ import annotations

import gc
import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS
from pipesat.profile.costs_file import samples_document
from pipesat.runtime.meters import HostClock, HostMeter, Reading

_BACKWARD = "torch.distributed.pipelining._backward"
_FUNCTIONS = ("stage_backward", "stage_backward_input", "stage_backward_weight")

Mark: TypeAlias = Callable[[], None]


class Backward(NamedTuple):
    """The functions with which torch's pipeline stages run their backwards."""

    whole: Callable[..., Any]
    of_input: Callable[..., Any]
    of_weight: Callable[..., Any]


def load_backward() -> Backward:
    """Import them (a private interface)."""
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
    """One stage to be measured, and what measures it.

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
    backward: Backward
    clock: HostClock
    meter: HostMeter

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        for parameter in self.parameters:  # as in training: from the second microbatch on
            parameter.grad = torch.zeros_like(parameter)
        _, output, root = self.forward()
        self.trains = root.requires_grad
        self.starts = None if self.loss_of is not None else [torch.randn_like(output)]

    def forward(self) -> tuple[Any, Any, Any]:
        """Run F; return input, output, and the tensor where the backward starts."""
        x = self.x.detach()
        if self.input_gradient:
            x.requires_grad_()
        output = self.module(x)
        return x, output, output if self.loss_of is None else self.loss_of(output)

    def for_input(self, x: Any, root: Any) -> Any:
        """Run B; return what W needs."""
        return self.backward.of_input([root], self.starts, [x], iter(self.parameters))[1]

    def for_weights(self, groups: Any) -> None:
        """Run W."""
        self.backward.of_weight(iter(self.parameters), groups)

    def whole(self, x: Any, root: Any) -> None:
        """Run BW."""
        self.backward.whole((root,), (None,) if self.starts is None else (*self.starts,), [x])

    def split_ops(self, mark: Mark) -> Any:
        """Run F, B and W, with a mark after each; return where the backward starts."""
        x, _, root = self.forward()
        mark()
        groups = self.for_input(x, root)
        mark()
        self.for_weights(groups)
        mark()
        return root

    def whole_ops(self, mark: Mark) -> Any:
        """Run F and BW, with a mark after each; return where the backward starts."""
        x, _, root = self.forward()
        mark()
        if self.trains:
            self.whole(x, root)
        mark()
        return root

    def timed(self, ops: Callable[[Mark], Any]) -> list[float]:
        """Return how long ops took, in us."""
        durations = None
        while durations is None:
            self.clock.begin(lead=True)
            marks = [self.clock.mark()]
            root = ops(lambda marks=marks: marks.append(self.clock.mark()))  # type: ignore[misc]
            durations = self.clock.durations(marks)
            if self.loss_of is not None and not bool(torch.isfinite(root.detach()).all()):
                raise BadInput(
                    f"{self.name}: the loss is {float(root.detach())}, expected a finite number: "
                    "times of numbers that are none say little"
                )
            del root
            gc.collect()
        return durations

    def forget_gradients(self) -> None:
        """Free the gradients of all parameters."""
        for parameter in self.parameters:
            parameter.grad = None


def measure(subject: Subject, *, samples: int, warmup: int) -> dict[str, Any]:
    """Measure one stage; return what a profile's ``Costs`` have of times and held memory."""
    no_split = _why_not(subject)
    times: dict[str, list[float]] = defaultdict(list)
    gc.collect()
    gc.freeze()  # what is there now stays there: collecting after every sample gets cheap
    try:
        for number in range(warmup + samples):
            for kind, duration in _sample(subject, split=not no_split):
                if number >= warmup:
                    times[kind].append(duration)
        held = _memory(subject, split=not no_split)
    finally:
        gc.unfreeze()
        subject.forget_gradients()
    costs = {kind: samples_document(times[kind]) for kind in KINDS if kind in times}
    return costs | {"no_split": no_split} | held


def _why_not(subject: Subject) -> str:
    """Say why the backward cannot be split, after trying; empty if it can."""
    if not subject.trains:
        return "nothing in it or before it is trained"
    if not subject.input_gradient:
        return "its input needs no gradient, so nothing can be split off"
    try:
        subject.split_ops(lambda: None)
    except RuntimeError as error:
        cause = error.__cause__ or error
        if isinstance(cause, torch.OutOfMemoryError):
            raise
        return f"torch cannot split it: {str(cause).strip().splitlines()[0]}"
    return ""


def _sample(subject: Subject, *, split: bool) -> Iterator[tuple[str, float]]:
    """Time one microbatch with its backward split, and one with it whole."""
    if split:
        yield from zip("FBW", subject.timed(subject.split_ops), strict=True)
    forward, whole = subject.timed(subject.whole_ops)
    yield "F", forward
    yield "BW", whole if subject.trains else 0.0


def _memory(subject: Subject, *, split: bool) -> dict[str, Any]:
    """Run each kind of op once more, metered.

    Not counted, because each is static memory: input, gradient of the output, parameters and their
    gradients. The input's gradient belongs to the receive buffers.
    """
    transient: dict[str, int] = {}
    held = {"held_after_F": 0, "held_after_B": 0}
    meter = subject.meter
    if split:
        with meter.op() as f:
            x, output, root = subject.forward()
        with meter.op() as b:
            groups = subject.for_input(x, root)
            x.grad = None
            if subject.loss_of is not None:
                del output  # the runtime lets the last stage's output go after B
        with meter.op() as w:
            subject.for_weights(groups)
        held = {"held_after_F": f.change, "held_after_B": f.change + b.change}
        transient = {"B": f.change + b.peak - max(held.values()), "W": w.peak}
        del x, root, groups
        output = None
        gc.collect()
    with meter.op() as f:
        x, output, root = subject.forward()
    reading = Reading()
    if subject.trains:
        with meter.op() as reading:
            subject.whole(x, root)
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
