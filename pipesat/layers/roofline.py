"""Costs of a decoder's layers without a GPU: an estimate from its shape and published peaks.

Every layer's work is split into three kinds: matrix products with weights, attention between
tokens, and traffic with memory. Each takes ``work / (peak x efficiency)``, one after the other.
With t tokens per microbatch, s per sequence, width w, inner width f, k = kv_heads x width per head,
2 bytes per number:

* **products** of a block, F: ``2 t n`` operations with ``n = w (2 w + 2 k) + c w f`` weights
  (c = 3 with a gate, else 2); B and W take as many each.
* **attention**, causal, F: ``2 t s w``; B takes 5/2 of it (one product again, four new ones:
  Dao 2023, arXiv 2307.08691, section 3.1); W none.
* **traffic**: bytes read and written by norms, residuals, activation and rotation, counted below.
* **collectives**, where n devices share a layer: n - 1 shards of its output each, sent over links
  at the same share of their peak as memory's. Four in a block's F and four in its B, one in those
  of embedding and head. They hide behind nothing, as in Megatron-LM without
  ``--tp-comm-overlap``; only what W gathers anew is taken to hide behind B.

Activations per token: what autograd keeps of such a block with fused attention and without dropout,
and for W the inputs and the output gradients of every product (Zero Bubble, arXiv 2401.10241,
table 1 counts the same way: 32 w for a GPT block).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, gcd
from typing import Final, NamedTuple

from pipesat.core.errors import BadInput
from pipesat.layers.layer import Layer, Layers, Role, WeightMemory
from pipesat.layers.profile.published import DecoderShape, Gpu
from pipesat.problem.costs import Costs

_BYTES: Final = 2  # of one bfloat16 number
_LOSS_BYTES: Final = 4  # of one logit in the loss
_UNIT_BYTES: Final = 1 << 20
_ATTENTION_BACKWARD: Final = 2.5
_RECIPE: Final = WeightMemory(
    unit_bytes=_UNIT_BYTES,
    dtype="bfloat16",
    grad_dtype="float32",
    optimizer="adamw",
    state_dtype="float32",
    master_dtype="float32",
)


class Efficiency(NamedTuple):
    """Shares of the published peaks that are reached: of products, attention and traffic.

    ``exposed`` is the share of collectives that hides behind no compute.
    """

    products: float
    attention: float
    traffic: float
    exposed: float = 1.0


LIKELY: Final = Efficiency(0.7, 0.4, 0.7)
"""What well-tuned training reaches, roughly."""
SLOW: Final = Efficiency(0.5, 0.25, 0.5)
FAST: Final = Efficiency(0.85, 0.6, 0.9, exposed=0.0)
"""Ends of the range that an estimate is printed with."""


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """What is computed, where: tokens per microbatch = ``batch * length``.

    ``tensor_parallel`` devices share every layer as Megatron-LM does with sequence parallelism:
    each has 1 / n of the weights, of the products, of all activations (Korthikanti et al. 2022,
    arXiv 2205.05198, section 4.2.2), and of what goes to the next stage. For that they gather and
    reduce what they share (figure 5 there).
    """

    length: int
    batch: int = 1
    tensor_parallel: int = 1

    @property
    def tokens(self) -> int:
        """Per microbatch."""
        return self.batch * self.length

    def output(self, shape: DecoderShape) -> int:
        """Bytes that a layer hands to the next one per microbatch, on all devices that share it."""
        return self.tokens * shape.width * _BYTES

    def require_equal_shares(self, shape: DecoderShape) -> None:
        """Pass if each device has as many heads, columns and tokens: Megatron-LM wants it so.

        Raises
        ------
        BadInput
            Naming what does not divide, and what would.
        """
        shared = {name: getattr(shape, name) for name in ("heads", "kv_heads", "feed_forward")}
        shared["length"] = self.length
        most, n = gcd(*shared.values()), self.tensor_parallel
        for name, amount in shared.items():
            if amount % n:
                allowed = ", ".join(str(d) for d in range(1, most + 1) if most % d == 0)
                raise BadInput(
                    f"{name} {amount} does not divide by it: expected one of {allowed}",
                    where="tensor_parallel",
                    value=n,
                )


def estimated_layers(
    shape: DecoderShape, gpu: Gpu, run: ModelRun, *, name: str = "", efficiency: Efficiency = LIKELY
) -> Layers:
    """Estimate embedding, blocks and head of a decoder, in microseconds, MiB and bytes.

    Weights are trained in bfloat16 with float32 gradients, AdamW states and master weights. A block
    may be recomputed: its F again, only its input kept. The layers carry the range that
    :data:`FAST` and :data:`SLOW` give.
    """
    run.require_equal_shares(shape)
    likely = _layers(shape, gpu, run, name, efficiency)
    stated = max(1, microbatch_time(likely))
    least, most = (1000 * time / stated for time in range_of_estimate(shape, gpu, run))
    holds = (max(1, min(1000, floor(least))), max(1000, ceil(most)))
    return replace(likely, estimate_range=holds)


def _layers(
    shape: DecoderShape, gpu: Gpu, run: ModelRun, name: str, efficiency: Efficiency
) -> Layers:
    n, output = run.tensor_parallel, run.output(shape)
    sent = (n - 1) * output  # by one collective, in all
    links = gpu.link_bandwidth * min(max(1, n - 1), gpu.neighbours) * efficiency.traffic
    lookup = _Work(0, 0, 2 * output, 1)
    embedding = _LayerWork(lookup, _Work(0, 0, 0), lookup, shape.vocabulary * shape.width, 0, 0)

    def us(work: _Work) -> int:
        """Microseconds that the devices which share a layer take."""
        seconds = (
            work.products / (gpu.matmul * 1e12 * efficiency.products)
            + work.attention / (gpu.matmul * 1e12 * efficiency.attention)
            + work.traffic / (gpu.memory_bandwidth * 1e9 * efficiency.traffic)
            + work.collectives * sent * efficiency.exposed / (links * 1e9)
        )
        return round(seconds / n * 1e6)

    def layer(name: str, role: Role, part: _LayerWork) -> Layer:
        F, B, W = map(us, part[:3])
        held, left = (ceil(size / n / _UNIT_BYTES) for size in part[4:])
        costs = Costs(F, B, W, None, held, left)
        return Layer(name, costs, ceil(part.weights / n), ceil(output / n), role)

    part = _block(shape, run)
    block = layer("block", "block", part)
    again = replace(
        block.costs,
        B=block.costs.B + us(part.forward),
        held_after_F=ceil(output / n / _UNIT_BYTES),
    )
    took = us(_Work(0, 0, 0, part.forward.collectives)) / 1000
    shared = (
        f". {n} GPUs share every layer, with sequence parallelism. Its all-gathers and "
        f"reduce-scatters are taken to hide behind nothing: {took:.3g} ms in a block's F and in "
        f"its B, at {links:.0f} GB/s. The range begins where all of them are hidden"
    )
    return Layers(
        (
            replace(layer("embedding", "embedding", embedding), first=True),
            *(replace(block, name=f"block {i}", recomputed=again) for i in range(shape.layers)),
            replace(layer("head", "head", _head(shape, run)), output=0, last=True),
        ),
        name=name,
        time_unit="us",
        memory_unit="MiB",
        size_unit="B",
        recipe=_RECIPE,
        estimate=(
            f"roofline: {efficiency.products:g} of the peak in products, "
            f"{efficiency.attention:g} in attention, "
            f"{efficiency.traffic:g} of the memory's bandwidth ({gpu.source})"
            f"{shared if n > 1 else ''}"
        ),
        tensor_parallel=n,
        batch=run.batch,
    )


def microbatch_time(layers: Layers) -> int:
    """Time of one forward and one whole backward through all layers, in time units."""
    return sum(layers.amounts("F")) + sum(layers.amounts("BW"))


def range_of_estimate(shape: DecoderShape, gpu: Gpu, run: ModelRun) -> tuple[int, int]:
    """Least and most of :func:`microbatch_time`, at :data:`FAST` and :data:`SLOW`."""
    fast, slow = (
        microbatch_time(_layers(shape, gpu, run, "", efficiency)) for efficiency in (FAST, SLOW)
    )
    return fast, slow


class _Work(NamedTuple):
    """Floating-point operations of products and attention, bytes of traffic, and collectives."""

    products: float
    attention: float
    traffic: float
    collectives: int = 0


class _LayerWork(NamedTuple):
    """One layer: its work by op, number of weights, bytes held after F and after B."""

    forward: _Work
    backward: _Work
    weight: _Work
    weights: int
    held_after_F: float
    held_after_B: float


def _block(shape: DecoderShape, run: ModelRun) -> _LayerWork:
    """Attention and feed-forward of one block."""
    t, w, f = run.tokens, shape.width, shape.feed_forward
    k = shape.kv_heads * (w // shape.heads)
    gated = shape.style == "llama"
    weights = w * (2 * w + 2 * k) + (3 if gated else 2) * w * f
    products, attention = 2.0 * t * weights, 2.0 * t * run.length * w
    # numbers read and written per token: two norms and two residual sums take 2 + 3 widths each,
    # rotation twice q and k, the activation its inputs and its output
    moved = 10 * w + (2 * (w + k) + 3 * f if gated else 2 * f)
    # kept: norms' inputs and outputs, q, k, v, attention's output, and around the activation
    kept = 5 * w + w + 2 * k + (4 * f if gated else 2 * f)
    linear = (w + w + 2 * k) + 2 * w + (3 * f + 2 * w if gated else 2 * (w + f))
    forward = _Work(products, attention, _BYTES * t * moved, 4)
    backward = _Work(products, _ATTENTION_BACKWARD * attention, 2 * forward.traffic, 4)
    weight = _Work(products, 0, 0)  # gradients are added up within the product
    statistics = 4 * shape.heads * t
    return _LayerWork(
        forward, backward, weight, weights, _BYTES * t * kept + statistics, _BYTES * t * linear
    )


def _head(shape: DecoderShape, run: ModelRun) -> _LayerWork:
    """Last norm, product with the vocabulary, and the loss in float32."""
    t, w, v = run.tokens, shape.width, shape.vocabulary
    products = _Work(2.0 * t * w * v, 0, 0)
    logits = float(t * v)
    forward = products._replace(traffic=logits * (2 * _BYTES + 3 * _LOSS_BYTES), collectives=1)
    backward = products._replace(traffic=logits * (_BYTES + _LOSS_BYTES), collectives=1)
    kept = _BYTES * t * 2 * w + logits * (_BYTES + _LOSS_BYTES)
    return _LayerWork(forward, backward, products, w * v, kept, _BYTES * (t * w + logits))
