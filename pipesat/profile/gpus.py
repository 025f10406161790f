"""Peak figures of GPUs, as their makers publish them: what a roofline estimate starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipesat.core.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU's published peaks.

    Attributes
    ----------
    matmul
        Dense bfloat16 matrix products, in 10^12 floating-point operations per second.
    memory_bandwidth
        Of its own memory, in 10^9 bytes per second.
    memory
        Capacity in bytes.
    link_bandwidth
        To a neighbour in the same machine, one direction, in 10^9 bytes per second.
    source
        Where the figures stand.
    """

    matmul: float
    memory_bandwidth: float
    memory: int
    link_bandwidth: float
    source: str


_GB: Final = 10**9

GPUS: Final[Mapping[str, Gpu]] = {
    "a100": Gpu(
        matmul=312,
        memory_bandwidth=2039,
        memory=80 * _GB,
        link_bandwidth=300,
        source="NVIDIA A100 80GB SXM datasheet, 2021",
    ),
    "h100": Gpu(
        matmul=989,
        memory_bandwidth=3350,
        memory=80 * _GB,
        link_bandwidth=450,
        source="NVIDIA H100 SXM datasheet, 2023 (half of the figure with sparsity)",
    ),
    "h200": Gpu(
        matmul=989,
        memory_bandwidth=4800,
        memory=141 * _GB,
        link_bandwidth=450,
        source="NVIDIA H200 SXM datasheet, 2024 (half of the figure with sparsity)",
    ),
    "b200": Gpu(
        matmul=2250,
        memory_bandwidth=7700,
        memory=180 * _GB,
        link_bandwidth=900,
        source="NVIDIA HGX B200 datasheet, 2024 (half of the figure with sparsity)",
    ),
    "l40s": Gpu(
        matmul=362,
        memory_bandwidth=864,
        memory=48 * _GB,
        link_bandwidth=32,
        source="NVIDIA L40S datasheet, 2023; link: PCIe 4.0 x16",
    ),
    "mi300x": Gpu(
        matmul=1307,
        memory_bandwidth=5300,
        memory=192 * _GB,
        link_bandwidth=64,
        source="AMD Instinct MI300X datasheet, 2023; link: one of seven to a neighbour",
    ),
}
"""By the names that ``--gpu`` takes."""


def named_gpu(name: str) -> Gpu:
    """Look a GPU up.

    Raises
    ------
    BadInput
        If there is none of that name.
    """
    try:
        return GPUS[name.lower()]
    except KeyError:
        known = ", ".join(GPUS)
        raise BadInput(f"expected one of {known}", where="gpu", value=name) from None
