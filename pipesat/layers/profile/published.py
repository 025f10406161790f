"""Published figures: shapes of decoder-only language models, and peaks of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from pipesat.core.errors import BadInput, require
from pipesat.core.names import named
from pipesat.core.settings import Keys

Style: TypeAlias = Literal["gpt", "llama"]


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """Sizes of a decoder: embedding, ``layers`` blocks, norm and head.

    ``gpt`` has learned positions, LayerNorm, a GELU feed-forward and biases; ``llama`` has rotary
    positions, RMSNorm, a gated SiLU feed-forward and no biases. Embedding and head are not tied.

    Attributes
    ----------
    width
        Numbers per token between blocks.
    heads, kv_heads
        Query heads, and heads of keys and values (fewer: grouped-query attention).
    feed_forward
        Inner width of the feed-forward layer.
    """

    style: Style
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int

    def __post_init__(self) -> None:
        require(
            self.style in ("gpt", "llama"), "expected gpt or llama", where="style", value=self.style
        )
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(
                    "expected a whole number of at least 1", where=field.name, value=value
                )
        require(
            self.width % self.heads == 0,
            f"expected a divisor of width {self.width}",
            where="heads",
            value=self.heads,
        )
        require(
            self.heads % self.kv_heads == 0,
            f"expected a divisor of heads {self.heads}",
            where="kv_heads",
            value=self.kv_heads,
        )
        each = self.width // self.heads
        require(
            self.style != "llama" or each % 2 == 0,
            "rotary positions need an even width per head",
            where="width / heads",
            value=each,
        )


@dataclass(frozen=True)
class NamedShape:
    """A published model's shape, the length it was trained with, and where these are stated."""

    shape: DecoderShape
    length: int
    source: str


def _gpt(layers: int, width: int, heads: int) -> DecoderShape:
    return DecoderShape(
        style="gpt",
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=heads,
        feed_forward=4 * width,
        vocabulary=50257,
    )


def _llama(
    layers: int, width: int, heads: int, feed_forward: int, vocabulary: int, kv_heads: int = 0
) -> DecoderShape:
    return DecoderShape(
        style="llama",
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads or heads,
        feed_forward=feed_forward,
        vocabulary=vocabulary,
    )


_GPT2 = "Radford et al. 2019, table 2; vocabulary 50257, section 2.3"
_GPT3 = "Brown et al. 2020 (arXiv 2005.14165), table 2.1; GPT-2's vocabulary"
_ZB = "Qi et al. 2024, Zero Bubble (arXiv 2401.10241), table 3; GPT-2's vocabulary"
_LLAMA = "Touvron et al. 2023 (arXiv 2302.13971), table 2; feed-forward from the released weights"
_LLAMA2 = "Touvron et al. 2023 (arXiv 2307.09288), section 2.2; sizes from the released weights"
_LLAMA3 = "Llama team 2024 (arXiv 2407.21783), table 3"
_MISTRAL = "Jiang et al. 2023 (arXiv 2310.06825), table 1; full instead of windowed attention"

SHAPES: Final[Mapping[str, NamedShape]] = {
    "tiny": NamedShape(
        DecoderShape(
            style="llama", layers=6, width=128, heads=4, kv_heads=4, feed_forward=352,
            vocabulary=1024,
        ),
        128, "none: for a laptop",
    ),
    "gpt2": NamedShape(_gpt(12, 768, 12), 1024, _GPT2),
    "gpt2-xl": NamedShape(_gpt(48, 1600, 25), 1024, _GPT2 + "; 25 heads from the released weights"),
    "gpt3-6.7b": NamedShape(_gpt(32, 4096, 32), 2048, _GPT3),
    "gpt3-175b": NamedShape(_gpt(96, 12288, 96), 2048, _GPT3),
    "zb-1.5b": NamedShape(_gpt(22, 2304, 24), 1024, _ZB),
    "zb-6.2b": NamedShape(_gpt(30, 4096, 32), 1024, _ZB),
    "zb-14.6b": NamedShape(_gpt(46, 5120, 40), 1024, _ZB),
    "zb-28.3b": NamedShape(_gpt(62, 6144, 48), 1024, _ZB),
    "llama-7b": NamedShape(_llama(32, 4096, 32, 11008, 32000), 2048, _LLAMA),
    "llama-13b": NamedShape(_llama(40, 5120, 40, 13824, 32000), 2048, _LLAMA),
    "llama2-7b": NamedShape(_llama(32, 4096, 32, 11008, 32000), 4096, _LLAMA2),
    "llama2-70b": NamedShape(_llama(80, 8192, 64, 28672, 32000, 8), 4096, _LLAMA2),
    "llama3-8b": NamedShape(_llama(32, 4096, 32, 14336, 128256, 8), 8192, _LLAMA3),
    "llama3-70b": NamedShape(_llama(80, 8192, 64, 28672, 128256, 8), 8192, _LLAMA3),
    "llama3-405b": NamedShape(_llama(126, 16384, 128, 53248, 128256, 8), 8192, _LLAMA3),
    "mistral-7b": NamedShape(_llama(32, 4096, 32, 14336, 32000, 8), 8192, _MISTRAL),
}  # fmt: skip
"""By the names that ``pipesat profile --config`` takes."""


def named_shape(name: str) -> NamedShape:
    """Look a shape up."""
    try:
        return SHAPES[named("config", name, SHAPES)]
    except BadInput as error:
        raise BadInput(
            f"{error.expected}. Any other is the most similar of these with its own `shape`",
            where=error.where,
            value=name,
        ) from None


SIZES: Final[Keys] = {
    "style": get_args(Style),
    **dict.fromkeys(("layers", "width", "heads", "kv_heads", "feed_forward", "vocabulary"), int),
}
"""What ``--shape`` may say of a decoder."""


def with_sizes(base: DecoderShape, given: Mapping[str, Any]) -> DecoderShape:
    """Return a shape with other sizes; what follows from them is of the base's proportions."""
    sizes = asdict(base) | dict(given)
    if "heads" in given and "kv_heads" not in given:
        sizes["kv_heads"] = sizes["heads"]
    if "width" in given and "feed_forward" not in given:
        sizes["feed_forward"] = base.feed_forward * sizes["width"] // base.width or 1
    return DecoderShape(**sizes)


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
    neighbours
        How many such links work at once, each to another neighbour.
    """

    matmul: float
    memory_bandwidth: float
    memory: int
    link_bandwidth: float
    source: str
    neighbours: int = 1


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
        neighbours=7,
    ),
}
"""By the names that ``--gpu`` takes."""


def named_gpu(name: str) -> Gpu:
    """Look a GPU up."""
    return GPUS[named("gpu", name, GPUS)]
