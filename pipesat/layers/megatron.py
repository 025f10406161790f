"""What Megatron-LM's own schedules refuse, by the guards of megatron-core 0.16.1.

One stage per rank runs 1F1B, with any number of microbatches. Several run interleaved 1F1B in
groups of g microbatches, the last one smaller; g is p, or what
``--microbatch-group-size-per-virtual-pipeline-stage`` says. There it wants p > 1, ``p <= g <= m``,
and a last group that is full or has at least p.

Full recomputation checkpoints every transformer layer (method ``uniform``, units of one layer), or
the first n of every stage (``block``): those of each chunk, where a rank has several.

Combined 1F1B (``--overlap-moe-expert-parallel-comm``) is interleaved 1F1B with one more forward
first, then each forward together with the backward after it. It wants several stages per rank, and
nothing recomputed in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipesat.layers.layer import Layers

CORE_VERSION: Final = "0.16.1"
_GROUP_SIZE = "--microbatch-group-size-per-virtual-pipeline-stage"


def refusal(ranks: int, chunks: int, microbatches: int) -> str | None:
    """Why Megatron-LM refuses so many microbatches as it is called, or ``None`` if it does not.

    ``chunks`` is the number of stages per rank. Where another group size helps, the least is named.
    """
    if chunks == 1:
        return None
    if ranks == 1:
        return f"Megatron-LM refuses {chunks} stages on a single rank: give it one, or more ranks"
    runs = f"with {chunks} stages per rank it runs groups of {ranks} microbatches, one per rank"
    if microbatches < ranks:
        return (
            f"Megatron-LM refuses {microbatches} microbatches: {runs}, and wants at least one "
            f"group: use {ranks} or more"
        )
    rest = microbatches % ranks
    if not rest:
        return None
    return (
        f"Megatron-LM refuses {microbatches} microbatches: {runs}, and a last group of {rest} is "
        f"too small: use a multiple of {ranks}, or add "
        f"{_GROUP_SIZE}={least_group(ranks, microbatches)}, which runs another order with another "
        "memory"
    )


def least_group(ranks: int, microbatches: int) -> int:
    """Least group size that Megatron-LM takes; m itself always does from m = p on."""
    return group_sizes(ranks, microbatches)[0]


def group_sizes(ranks: int, microbatches: int) -> list[int]:
    """All group sizes that Megatron-LM takes with several stages per rank, ascending."""
    return [size for size in range(ranks, microbatches + 1) if not 0 < microbatches % size < ranks]


def group_option(size: int) -> str:
    """Return the option that sets a group size."""
    return f"{_GROUP_SIZE}={size}"


def recompute_options(first: int | None = None) -> list[str]:
    """Return the options that recompute the first so many layers of every stage; ``None``: all."""
    method, count = ("uniform", 1) if first is None else ("block", first)
    return [
        "--recompute-granularity=full",
        f"--recompute-method={method}",
        f"--recompute-num-layers={count}",
    ]


def overlap_options() -> list[str]:
    """Return the options that run a forward and a backward together, W apart from its B."""
    return ["--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"]


OVERLAP_WANTS: Final = (
    "expert communication overlaps with --expert-model-parallel-size above 1, "
    "--moe-token-dispatcher-type alltoall or flex, --bf16 or --fp16, without "
    "--moe-shared-expert-overlap, from torch 2.6 on"
)
"""What Megatron-LM asks for besides, of what does not concern the pipeline."""


def first_recomputed(layers: Layers, partition: Sequence[range], first: int) -> Layers:
    """Return layers of which the first so many transformer layers of every stage recompute."""
    again = {k for part in partition for k in _blocks(layers, part)[:first]}
    return replace(
        layers,
        layers=tuple(
            replace(x, costs=x.recomputed, recomputed=None) if k in again and x.recomputed else x
            for k, x in enumerate(layers.layers)
        ),
    )


def most_blocks(layers: Layers, partition: Sequence[range]) -> int:
    """Transformer layers of the stage that has most."""
    return max((len(_blocks(layers, part)) for part in partition), default=0)


def _blocks(layers: Layers, part: range) -> list[int]:
    return [k for k in part if layers.layers[k].role == "block"]
