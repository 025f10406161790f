"""Layers that cost the less of plain and recomputed, amount by amount: what every choice is above.

Lower times and less memory never make a schedule longer: whatever runs with some stages recomputing
runs with these costs too. So a bound of theirs holds for every choice.
"""

from __future__ import annotations

from dataclasses import replace

from pipesat.layers.layer import AMOUNTS, Layer, Layers
from pipesat.placements import Costs


def cheapest(layers: Layers) -> Layers:
    """Return the layers with the smaller of every amount, and nothing to choose."""
    if not layers.recomputable:
        return layers
    return replace(layers, layers=tuple(map(_cheapest, layers.layers)))


def variants(layers: Layers) -> tuple[Layers, ...]:
    """The layers as they are, and as they are on a stage that recomputes; each without a choice."""
    plain = replace(layers, layers=tuple(replace(x, recomputed=None) for x in layers.layers))
    if not layers.recomputable:
        return (plain,)
    again = (replace(x, costs=x.recomputed or x.costs, recomputed=None) for x in layers.layers)
    return plain, replace(layers, layers=tuple(again))


def _cheapest(layer: Layer) -> Layer:
    least = {kind: min(layer.amount(kind), layer.amount(kind, recompute=True)) for kind in AMOUNTS}
    return replace(layer, costs=Costs(**least), recomputed=None)
