"""What Megatron-LM's own schedules refuse and take, by the guards of megatron-core 0.19.2.

One stage per rank runs 1F1B, with any number of microbatches. Several run interleaved 1F1B in
groups of g microbatches, the last one smaller; g is p, or what
``--microbatch-group-size-per-virtual-pipeline-stage`` says. There it wants p > 1, ``p <= g <= m``,
and a last group that is full or has at least p.

Full recomputation checkpoints every transformer layer (method ``uniform``, units of one layer), or
the first n of every stage (``block``): those of each chunk, where a rank has several.

Combined 1F1B (``--overlap-moe-expert-parallel-comm``) is interleaved 1F1B with one more forward
first, then each forward together with the backward after it. It wants several stages per rank, and
nothing recomputed in full.

Hybrid models have ``--hybrid-layer-pattern`` and refuse a layout: a symbol per layer. ``M`` Mamba,
``G`` gated delta net, ``*`` attention, ``D`` DeepSeek's sparse attention, ``+`` latent attention,
``-`` MLP, ``E`` experts. ``|`` parts stages, which lie in a loop: stage s on rank s mod p. What
follows a ``/`` is an MTP layer; all are alike, and belong to the last stage, as the loss does.
(Facts of megatron-core 0.19.2, models/hybrid/hybrid_layer_allocation.py.)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

from pipesat.core.errors import BadInput, NotApplicable, require, require_applicable
from pipesat.core.showing import ranges
from pipesat.layers.layer import Layers
from pipesat.layers.layout import layout_of_partition, parse_layout, partition_of_layout
from pipesat.problem.partition import partition_of

CORE_VERSION: Final = "0.19.2"
GROUP_SIZE: Final = "--microbatch-group-size-per-virtual-pipeline-stage"
NOT_WITH_LAYOUT: Final = (
    "--num-layers-per-virtual-pipeline-stage",
    "--num-virtual-stages-per-pipeline-rank",
)
"""A layout says what these say, and Megatron-LM asserts that one alone is given."""


def refusal(ranks: int, chunks: int, microbatches: int, group: int | None = None) -> str | None:
    """Why Megatron-LM refuses so many microbatches as it is called, or ``None`` if it does not.

    ``chunks`` is the number of stages per rank, ``group`` the size of groups that it is told, if
    any. Where another group size helps, the least is named.
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
    if group is not None:
        takes = group_sizes(ranks, microbatches)
        why = (
            f"Megatron-LM refuses groups of {group} with {microbatches} microbatches on {ranks} "
            f"ranks: none may be smaller than {ranks}, the last one included. It takes groups of "
            f"{ranges(takes)}"
        )
        return None if group in takes else why
    rest = microbatches % ranks
    if not rest:
        return None
    return (
        f"Megatron-LM refuses {microbatches} microbatches: {runs}, and a last group of {rest} is "
        f"too small: use a multiple of {ranks}, or add "
        f"{group_option(group_sizes(ranks, microbatches)[0])}, which runs another order with "
        "another memory"
    )


def group_sizes(ranks: int, microbatches: int) -> list[int]:
    """All group sizes that Megatron-LM takes with several stages per rank, ascending.

    From m = p on, m itself is one.
    """
    return [size for size in range(ranks, microbatches + 1) if not 0 < microbatches % size < ranks]


def group_option(size: int) -> str:
    """Return the option that sets a group size."""
    return f"{GROUP_SIZE}={size}"


def size_options(shared_by: int, batch: int) -> list[str]:
    """Return the options of what costs are of: GPUs that share every layer, and sequences."""
    shared = [f"--tensor-model-parallel-size={shared_by}", "--sequence-parallel"]
    return shared * (shared_by > 1) + [f"--micro-batch-size={batch}"] * (batch > 1)


def recompute_options(first: int | None = None) -> list[str]:
    """Return the options that recompute the first so many layers of every stage; ``None``: all."""
    method, count = ("uniform", 1) if first is None else ("block", first)
    return [
        "--recompute-granularity=full",
        f"--recompute-method={method}",
        f"--recompute-num-layers={count}",
    ]


OVERLAP: Final = ("--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute")
"""The options that run a forward and a backward together, W apart from its B."""
OVERLAP_WANTS: Final = (
    "expert communication overlaps with --expert-model-parallel-size above 1, "
    "--moe-token-dispatcher-type alltoall or flex, --bf16 or --fp16, without "
    "--moe-shared-expert-overlap, --recompute-modules without moe, at most one MTP layer, "
    "from torch 2.6 on"
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


HYBRID_SYMBOLS: Final = "M G * D + - E"
HYBRID_LAYER: Final = "^[MGD*+E-]*$"
_PATTERN: Final = re.compile(r"[MGD*+E|-]+(/[MGD*+E-]+)*")


def pattern_of_partition(layers: Layers, partition: Sequence[range]) -> str:
    """Return a partition of hybrid layers as Megatron-LM's pattern.

    Raises
    ------
    NotApplicable
        If an MTP layer lies on another stage than the last, or two are not alike.
    """
    stages = [[layers.layers[k] for k in part] for part in partition]
    mtp = [layer.hybrid for stage in stages for layer in stage if layer.role == "mtp"]
    require_applicable(
        all(layer.role != "mtp" for stage in stages[:-1] for layer in stage),
        "Megatron-LM's hybrid pattern has MTP layers on the last stage alone",
    )
    require_applicable(
        len(set(mtp)) <= 1, "Megatron-LM's hybrid pattern has MTP layers that are all alike"
    )
    main = ("".join(x.hybrid for x in stage if x.role == "block") for stage in stages)
    return "/".join(["|".join(main), *mtp])


def layout_text_of(layers: Layers, partition: Sequence[range], devices: int | None) -> str:
    """Return what Megatron-LM takes: a hybrid model's pattern, another one's layout.

    It is read back by Megatron-LM's rules, on so many ranks; ``None``: for people alone.

    Raises
    ------
    NotApplicable
        If Megatron-LM has none for it, or would cut otherwise.
    """
    try:
        if layers.hybrid:
            text = pattern_of_partition(layers, partition)
            back = partition_of_pattern(text, layers)
        else:
            text = layout_of_partition(layers, partition).text
            back = partition_of_layout(parse_layout(text, devices=devices), layers)
    except BadInput as error:
        raise NotApplicable(f"Megatron-LM refuses its layout: {error}") from None
    require_applicable(
        [*map(len, back)] == [*map(len, partition)],
        f"Megatron-LM would cut otherwise by its layout {text}",
    )
    return text


def layout_option(layers: Layers, partition: Sequence[range], devices: int) -> str:
    """Return the option that says it, in quotes, as a shell needs it: ``|`` is a character of it.

    Raises
    ------
    NotApplicable
        As :func:`layout_text_of`.
    """
    name = "hybrid-layer-pattern" if layers.hybrid else "pipeline-model-parallel-layout"
    return f"--{name}={shlex.quote(layout_text_of(layers, partition, devices))}"


def partition_of_pattern(text: str, layers: Layers) -> tuple[range, ...]:
    """Cut hybrid layers as a pattern says; what is before and after the blocks is at the ends.

    The embedding is on the first stage, also where that has no block.
    """
    whole = pattern_of_partition(layers, (range(len(layers)),))
    require(
        checked(text).replace("|", "") == whole,
        f"expected the layers {whole}, parted by |",
        value=text,
    )
    lengths = [len(stage) for stage in text.partition("/")[0].split("|")]
    ends = {0: next((k for k, layer in enumerate(layers.layers) if layer.role == "block"), 0)}
    for k, layer in enumerate(layers.layers):
        if layer.role == "block":
            ends[max(ends) + len(layer.hybrid)] = k + 1
    cuts = [*accumulate(lengths[:-1])]
    for place in cuts:
        require(place in ends, f"a | stands inside a layer, after symbol {place}", value=text)
    return partition_of([0, *map(ends.__getitem__, cuts), len(layers)])


def cut_pattern(text: str, stages: int, counts: Sequence[int] | None) -> str:
    """Return a pattern with its stages parted: as they are, or so many symbols each."""
    main, slash, mtp = checked(text).partition("/")
    if counts is not None and "|" not in main:
        require(
            sum(counts) == len(main),
            f"expected {sum(counts)} symbols, as many as layers",
            where="pattern",
            value=text,
        )
        ends = [0, *accumulate(counts)]
        main = "|".join(main[a:b] for a, b in pairwise(ends))
    require(
        main.count("|") == stages - 1,
        f"expected {stages} stages, parted by |: or say `layers`, symbols per stage",
        where="pattern",
        value=text,
    )
    return f"{main}{slash}{mtp}"


def checked(text: str) -> str:
    """Return a text that is a pattern."""
    parts = text.split("/")
    require(
        _PATTERN.fullmatch(text) is not None and len(set(parts[1:])) <= 1,
        f"expected {HYBRID_SYMBOLS}, | between stages, equal MTP layers each after a /",
        where="pattern",
        value=text,
    )
    require(
        not any("*" in part and {"D", "+"} & {*part} for part in parts),
        "expected attention (*) or latent attention (D, +): Megatron-LM has no model with both",
        where="pattern",
        value=text,
    )
    return text
