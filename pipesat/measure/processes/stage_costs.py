"""Measuring F, B, W and BW of one stage, the way torch's pipeline runtime runs them."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

from pipesat.core.errors import BadInput
from pipesat.core.torch_releases import TESTED
from pipesat.layers.profile.costs_file import samples_document
from pipesat.measure.processes.meters import HostClock, HostMeter, Reading
from pipesat.problem.ops import KINDS

try:
    from torch.distributed.pipelining._backward import (
        stage_backward,
        stage_backward_input,
        stage_backward_weight,
    )
except ImportError as error:  # a private interface
    raise BadInput(
        f"torch {torch.__version__} lacks what splits a backward ({error}). Profiling was tested "
        f"with torch {TESTED}"
    ) from None

Ops: TypeAlias = Callable[[], Iterator[str]]
"""Runs the ops of a microbatch, and yields after each its kind."""


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
    clock: HostClock
    meter: HostMeter

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        for parameter in self.parameters:  # as in training: from the second microbatch on
            parameter.grad = torch.zeros_like(parameter)
        _, output, root = self.forward()
        self.trains = root.requires_grad
        self.starts = None if self.loss_of is not None else [torch.randn_like(output)]
        self.loss: Any = None

    def forward(self) -> tuple[Any, Any, Any]:
        """Run F; return input, output, and the tensor where the backward starts."""
        x = self.x.detach()
        if self.input_gradient:
            x.requires_grad_()
        output = self.module(x)
        if self.loss_of is None:
            return x, output, output
        loss = self.loss_of(output)
        self.loss = loss.detach()
        return x, output, loss

    def split(self) -> Iterator[str]:
        """Run F, B and W; the runtime lets the last stage's output and x's gradient go after B."""
        x, output, root = self.forward()
        yield "F"
        groups = stage_backward_input([root], self.starts, [x], iter(self.parameters))[1]
        x.grad = None
        if self.loss_of is not None:
            del output
        yield "B"
        stage_backward_weight(iter(self.parameters), groups)
        yield "W"

    def whole(self) -> Iterator[str]:
        """Run F and BW."""
        x, _output, root = self.forward()
        yield "F"
        if self.trains:
            stage_backward((root,), (None,) if self.starts is None else (*self.starts,), [x])
        yield "BW"

    def timed(self, ops: Ops) -> dict[str, float]:
        """Return how long each op took, in us."""
        durations = None
        while durations is None:
            self.clock.begin(lead=True)
            kinds, marks = [], [self.clock.mark()]
            for kind in ops():
                kinds.append(kind)
                marks.append(self.clock.mark())
            durations = self.clock.durations(marks)
            if self.loss is not None and not bool(torch.isfinite(self.loss).all()):
                raise BadInput(
                    f"{self.name}: the loss is {float(self.loss)}, expected a finite number: "
                    "times of numbers that are none say little"
                )
            self.loss = None
            gc.collect()
        return dict(zip(kinds, durations, strict=True))

    def metered(self, ops: Ops) -> dict[str, Reading]:
        """Return what memory each op took."""
        readings = {}
        running: Iterator[str | None] = ops()
        kind: str | None = ""
        gc.collect()
        while kind is not None:
            with self.meter.op() as reading:
                kind = next(running, None)
            readings[kind or ""] = reading
        self.loss = None
        return readings

    def forget_gradients(self) -> None:
        """Free the gradients of all parameters."""
        for parameter in self.parameters:
            parameter.grad = None


def measure(subject: Subject, *, samples: int, warmup: int) -> dict[str, Any]:
    """Measure one stage; return what a profile's ``Costs`` have of times and held memory."""
    no_split = _why_not(subject)
    split: list[Ops] = [] if no_split else [subject.split]
    times: dict[str, list[float]] = defaultdict(list)
    try:
        for number in range(warmup + samples):
            for ops in (*split, subject.whole):
                for kind, duration in subject.timed(ops).items():
                    if number >= warmup:
                        times[kind].append(duration if subject.trains or kind == "F" else 0.0)
        held = _memory(subject, split)
    finally:
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
        [*subject.split()]
    except RuntimeError as error:
        cause = error.__cause__ or error
        if isinstance(cause, torch.OutOfMemoryError):
            raise
        line = str(cause).strip().splitlines()[0]
        return f"torch cannot split it: {line.partition('. ')[0]}"
    return ""


def _memory(subject: Subject, split: Sequence[Ops]) -> dict[str, Any]:
    """Run each kind of op once more, metered.

    Not counted, because each is static memory: input, gradient of the output, parameters and their
    gradients. The input's gradient belongs to the receive buffers.
    """
    held, transient = {"held_after_F": 0, "held_after_B": 0}, {}
    for ops in split:
        f, b, w, _ = subject.metered(ops).values()
        held = {"held_after_F": f.change, "held_after_B": f.change + b.change}
        transient = {"B": f.change + b.peak - max(held.values()), "W": w.peak}
    f, bw, _ = subject.metered(subject.whole).values()
    held["held_after_F"] = f.change
    transient |= {"F": f.peak - f.change, "BW": bw.peak if subject.trains else 0}
    return {kind: max(amount, 0) for kind, amount in held.items()} | {
        "transient": {kind: max(amount, 0) for kind, amount in transient.items()}
    }


def parameters_of(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Count parameters, each once, by type and by whether they are trained."""
    counts: dict[tuple[str, bool], list[int]] = {}
    for parameter in {id(p): p for p in parameters}.values():
        key = (str(parameter.dtype).removeprefix("torch."), parameter.requires_grad)
        entry = counts.setdefault(key, [0, 0])
        entry[0] += parameter.numel()
        entry[1] += parameter.numel() * parameter.element_size()
    return [
        {"dtype": dtype, "elements": elements, "bytes": size, "trainable": trainable}
        for (dtype, trainable), (elements, size) in counts.items()
    ]
