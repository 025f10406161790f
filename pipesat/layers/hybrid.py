"""Hybrid models in Megatron-LM: ``--hybrid-layer-pattern``, a symbol per layer, ``|`` per stage.

``M`` Mamba, ``G`` gated delta net, ``*`` attention, ``D`` DeepSeek's sparse attention, ``+`` latent
attention, ``-`` MLP, ``E`` experts. ``|`` parts stages, which lie in a loop: stage s on rank s mod
p. What follows a ``/`` is an MTP layer; all are alike, and belong to the last stage, as the loss
does. Such models refuse ``--pipeline-model-parallel-layout``. (Facts of Megatron-LM,
core/models/hybrid/hybrid_layer_allocation.py, 2026-08.)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.layers.layer import Layers
from pipesat.layers.layout import layout_of_partition

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
    if any(layer.role == "mtp" for stage in stages[:-1] for layer in stage):
        raise NotApplicable("Megatron-LM's hybrid pattern has MTP layers on the last stage alone")
    if len(set(mtp)) > 1:
        raise NotApplicable("Megatron-LM's hybrid pattern has MTP layers that are all alike")
    main = ("".join(x.hybrid for x in stage if x.role == "block") for stage in stages)
    return "/".join(["|".join(main), *mtp])


def layout_text_of(layers: Layers, partition: Sequence[range]) -> str:
    """Return what Megatron-LM takes: a hybrid model's pattern, another one's layout.

    Raises
    ------
    NotApplicable
        As :func:`pattern_of_partition`.
    """
    if layers.hybrid:
        return pattern_of_partition(layers, partition)
    return layout_of_partition(layers, partition).text


def layout_option(layers: Layers, partition: Sequence[range]) -> str:
    """Return the option that says it, in quotes, as a shell needs it: ``|`` is a character of it.

    Raises
    ------
    NotApplicable
        As :func:`pattern_of_partition`.
    """
    name = "hybrid-layer-pattern" if layers.hybrid else "pipeline-model-parallel-layout"
    return f"--{name}={shlex.quote(layout_text_of(layers, partition))}"


def partition_of_pattern(text: str, layers: Layers) -> tuple[range, ...]:
    """Cut hybrid layers as a pattern says; what is before and after the blocks is at the ends.

    Raises
    ------
    BadInput
        If it is no pattern, or has other layers than these, or parts one.
    """
    whole = pattern_of_partition(layers, (range(len(layers)),))
    if checked(text).replace("|", "") != whole:
        raise BadInput(f"expected the layers {whole}, parted by |", value=text)
    lengths = [len(stage) for stage in text.partition("/")[0].split("|")]
    ends = {0: 0}
    for k, layer in enumerate(layers.layers):
        if layer.role == "block":
            ends[max(ends) + len(layer.hybrid)] = k + 1
    cuts = [0, *accumulate(lengths[:-1])]
    for place in cuts:
        if place not in ends:
            raise BadInput(f"a | stands inside a layer, after symbol {place}", value=text)
    return tuple(range(a, b) for a, b in pairwise([*map(ends.__getitem__, cuts), len(layers)]))


def cut_pattern(text: str, stages: int, counts: Sequence[int] | None) -> str:
    """Return a pattern with its stages parted: as they are, or so many symbols each.

    Raises
    ------
    BadInput
        If it is no pattern, or has not so many stages or symbols.
    """
    main, slash, mtp = checked(text).partition("/")
    if counts is not None and "|" not in main:
        if sum(counts) != len(main):
            expected = f"expected {sum(counts)} symbols, as many as layers"
            raise BadInput(expected, where="pattern", value=text)
        ends = [0, *accumulate(counts)]
        main = "|".join(main[a:b] for a, b in pairwise(ends))
    if main.count("|") != stages - 1:
        expected = f"expected {stages} stages, parted by |: or say `layers`, symbols per stage"
        raise BadInput(expected, where="pattern", value=text)
    return f"{main}{slash}{mtp}"


def checked(text: str) -> str:
    """Return a text that is a pattern.

    Raises
    ------
    BadInput
        If it is none.
    """
    if _PATTERN.fullmatch(text) is None or len(set(text.split("/")[1:])) > 1:
        expected = f"expected {HYBRID_SYMBOLS}, | between stages, equal MTP layers each after a /"
        raise BadInput(expected, where="pattern", value=text)
    return text
