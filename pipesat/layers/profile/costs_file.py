"""How to measure, and what a profile then has of a layer or stage: times, memory, tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from pipesat.core.strict_json import StrictModel

Device: TypeAlias = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How to measure.

    Attributes
    ----------
    samples, warmup
        Microbatches that count, and those before them that do not.
    threads
        Threads of the CPU's ops; ``None``: as they are.
    stages, splits
        Numbers of stages whose stages are measured as a whole too, and how layers are cut.
    checkpoint
        Whether layers between the first and the last are checkpointed.
    modes
        Whether stages are measured in memory modes, too: recomputed and offloaded.
    compile
        Backend of ``torch.compile`` for these layers; empty: none.
    """

    name: str = ""
    device: Device = "cpu"
    samples: int = 10
    warmup: int = 3
    threads: int | None = None
    stages: Sequence[int] = ()
    splits: Sequence[str] = ("even",)
    checkpoint: bool = False
    compile: str = ""
    modes: bool = False


Microseconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
NonNegative = Annotated[int, Field(ge=0, le=10**15)]
Positive = Annotated[int, Field(ge=1, le=10**15)]
Slice = Annotated[list[NonNegative], Field(min_length=2, max_length=2)]
Dtype = Literal[
    "float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "complex128", "complex64", "complex32",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
]  # fmt: skip
"""torch's names of its types."""


class Samples(StrictModel):
    """Times of one op: all of them, their median and their 10th and 90th percentile."""

    median: Microseconds
    low: Microseconds
    high: Microseconds
    times: Annotated[list[Microseconds], Field(min_length=1)]


class TensorModel(StrictModel):
    """Shape, type and size of what passes between layers."""

    shape: list[NonNegative]
    dtype: Dtype
    bytes: NonNegative


class ParametersModel(StrictModel):
    """How many parameters of one type there are, and whether they are trained."""

    dtype: Dtype
    elements: NonNegative
    bytes: NonNegative
    trainable: bool


class TransientModel(StrictModel):
    """Most memory that an op takes on top of what is held during it (see ``Costs``)."""

    F: NonNegative
    B: NonNegative = 0
    W: NonNegative = 0
    BW: NonNegative


class RecomputeModel(StrictModel):
    """A layer or stage that keeps its input alone and runs again in its backward.

    ``held_after_F`` as in ``Costs``; ``peak_in_backward`` is the most that is alive in BW of what
    was not before F. ``gradients``: of the outputs of linear and convolution layers, which W needs;
    null where there are none.
    """

    BW: Samples
    held_after_F: NonNegative
    peak_in_backward: NonNegative
    gradients: NonNegative | None = None


class OffloadModel(StrictModel):
    """What is copied to the host after F, and what of ``held_after_F`` stays on the device."""

    bytes: NonNegative
    held: NonNegative


class CopiesModel(StrictModel):
    """Times of copies of ``bytes`` between the device and pinned memory of the host."""

    bytes: Positive
    out: Samples
    back: Samples


class MeasuredCostsModel(StrictModel):
    """Costs of one kind of layer, or of one stage.

    ``B`` and ``W`` are null where the backward cannot be split; ``no_split`` says why.
    ``held_after_F`` is what is alive after F and was not before, the output included, the input
    not. ``held_after_B`` is the same after B. ``host_bound``: the GPU waited for the host while
    this was measured, so that times include launches.
    """

    F: Samples
    B: Samples | None = None
    W: Samples | None = None
    BW: Samples
    no_split: str = ""
    held_after_F: NonNegative
    held_after_B: NonNegative = 0
    transient: TransientModel
    input: TensorModel
    output: TensorModel
    parameters: list[ParametersModel] = []
    buffers: NonNegative = 0
    host_bound: bool = False
    recompute: RecomputeModel | None = None
    offload: OffloadModel | None = None


def samples_document(times: Sequence[float]) -> dict[str, Any]:
    """Return median, 10th and 90th percentile (nearest rank) and all times, rounded to 1 ns."""
    rounded = [round(time, 3) for time in times]
    ordered = sorted(rounded)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    low, high = (ordered[max(0, -(-count * tenth // 10) - 1)] for tenth in (1, 9))
    return {"median": round(middle, 3), "low": low, "high": high, "times": rounded}
