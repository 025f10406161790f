"""Static memory of a device: what is there all the time, whatever the schedule.

Weights, gradients, optimizer states, buffers of layers, receive buffers, and the largest amount
that an op takes for itself while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from pipesat.core.amounts import amount
from pipesat.core.settings import Keys, keyed
from pipesat.core.torch_releases import Release, Version, release_named

if TYPE_CHECKING:
    from pipesat.layers.profile.costs_file import ParametersModel
    from pipesat.layers.profile.cut import StageCosts
    from pipesat.layers.profile.profile_file import Profile

Optimizer: TypeAlias = Literal[
    "none", "sgd", "sgd-momentum", "rmsprop", "adagrad", "lion", "muon", "adam", "adamw",
    "adamw-amsgrad",
]  # fmt: skip
Number: TypeAlias = Literal["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "int8"]

OPTIMIZER_STATES: Final[Mapping[Optimizer, int]] = {
    "none": 0,
    "sgd": 0,
    "sgd-momentum": 1,
    "rmsprop": 1,
    "adagrad": 1,
    "lion": 1,
    "muon": 1,
    "adam": 2,
    "adamw": 2,
    "adamw-amsgrad": 3,
}
"""Numbers that an optimizer keeps per parameter (torch.optim's states; Lion: Chen et al. 2023)."""

BYTES_OF: Final[Mapping[Number, int]] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "int8": 1,
}
"""Bytes of one number, by torch's name of its type."""

Receive: TypeAlias = Literal["torch", Version, "installed", "held"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a training run adds to a model's own memory.

    Attributes
    ----------
    grad_dtype, state_dtype
        Types of gradients and of optimizer states; ``None``: the parameters' own, as in torch.
    master_dtype
        Type of a second copy of the weights that the optimizer updates; ``None``: there is none.
    receive
        As a release of torch: ``2.13``, ``2.15``, ``installed``, or ``torch``, the newest
        (:mod:`pipesat.core.torch_releases`). ``held``: a stage's input is allocated when it comes
        and held like its activations, and nothing is kept that was sent.
    reserve
        Bytes that every device keeps for other things (CUDA's context, NCCL, fragmentation).
    """

    optimizer: Optimizer = "adamw"
    grad_dtype: Number | None = None
    state_dtype: Number | None = None
    master_dtype: Number | None = None
    receive: Receive = "torch"
    reserve: int = 0

    @cached_property
    def release(self) -> Release | None:
        """The release of torch that receives so; ``None``: it is another runtime."""
        if self.receive == "held":
            return None
        return release_named(None if self.receive == "torch" else self.receive, "receive")

    @property
    def keeps_buffers(self) -> bool:
        """Whether there are receive buffers of every microbatch for the whole run."""
        return self.release is not None and self.release.keeps_buffers


_KEYS: Final[Keys] = {
    "optimizer": get_args(Optimizer),
    **dict.fromkeys(("grad_dtype", "state_dtype", "master_dtype"), get_args(Number)),
    "receive": get_args(Receive),
}


def training_of(given: str | Mapping[str, Any] | None, reserve: int | str = 0) -> Training:
    """Return training of settings such as ``optimizer=sgd,grad_dtype=float32``."""
    settings = keyed("training", given, _KEYS)
    kept = amount("reserve", reserve) if isinstance(reserve, str) else reserve
    return Training(**settings, reserve=kept)


@dataclass(frozen=True)
class StaticMemory:
    """Bytes of one device, by what they are for."""

    weights: int
    gradients: int
    optimizer: int
    buffers: int
    receive: int
    transient: int
    reserve: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))


def static_memory(
    profile: Profile,
    stages: Sequence[StageCosts],
    training: Training,
    microbatches: int,
    splits: Sequence[bool],
) -> StaticMemory:
    """Static memory of the device of these stages, whose backwards may be split or not."""
    parameters = [p for stage in stages for p in stage.parameters]
    repeated = _counted_too_often(profile, stages)

    def per_number(dtype: Number | None, *, trained: bool = True) -> int:
        once = sum(_bytes(p, dtype) for p in parameters if p.trainable or not trained)
        again = sum(n * _bytes(p, dtype) for n, p in repeated if p.trainable or not trained)
        return once - again

    states = OPTIMIZER_STATES[training.optimizer] * per_number(training.state_dtype)
    master = 0 if training.master_dtype is None else per_number(training.master_dtype)
    return StaticMemory(
        weights=per_number(None, trained=False),
        gradients=per_number(training.grad_dtype),
        optimizer=states + master,
        buffers=sum(stage.buffers for stage in stages),
        receive=_receive_buffers(profile, stages, training, microbatches),
        transient=max(
            int(getattr(stage.transient, kind))
            for stage, split in zip(stages, splits, strict=True)
            for kind in (("F", "BW", "B", "W") if split else ("F", "BW"))
        ),
        reserve=training.reserve,
    )


def _bytes(parameters: ParametersModel, dtype: Number | None) -> int:
    return parameters.bytes if dtype is None else parameters.elements * BYTES_OF[dtype]


def _counted_too_often(
    profile: Profile, stages: Sequence[StageCosts]
) -> list[tuple[int, ParametersModel]]:
    """How often each shared parameter was counted too much on a device, which has it once.

    A slice that was measured as a whole counts it once, a sum of layers once per layer.
    """
    found = []
    for tied in profile.tied:
        counted = 0
        for stage in stages:
            here = sum(layer in stage.layers for layer in tied.layers)
            counted += min(here, 1) if stage.measured else here
        if counted > 1:
            found.append((counted - 1, tied.parameter))
    return found


def _receive_buffers(
    profile: Profile, stages: Sequence[StageCosts], training: Training, microbatches: int
) -> int:
    """Bytes of a step's inputs, and of what is received and sent.

    The first stage receives no activation but has all of its inputs, the last one no gradient but
    all targets. torch waits for the sends of gradients when a step ends, and keeps what was sent
    until then: an input gradient per microbatch. 2.13 has buffers of one input and one gradient per
    microbatch, and the output that was sent. (It counts twice while its microbatch is in flight.)
    2.15 has an input and a gradient that have come early; the losses of the step keep the inputs of
    the last stage. With ``held``, there is one gradient that has come and waits for its backward.
    """
    last = len(profile.layers)
    per_microbatch = once = 0
    for stage in stages:
        first, final = stage.layers.start == 0, stage.layers.stop == last
        if first:
            per_microbatch += profile.microbatch.input.bytes
        if final and profile.microbatch.target is not None:
            per_microbatch += profile.microbatch.target.bytes
        gradient, input_ = 0 if final else stage.output_bytes, 0 if first else stage.input_bytes
        if training.keeps_buffers:
            per_microbatch += 2 * gradient + 2 * input_
        elif training.release is not None:
            per_microbatch += input_ * (1 + final)
            once += gradient + input_
        else:
            once += gradient
    return microbatches * per_microbatch + once
