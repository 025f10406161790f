"""Layers that cost no more than a stage will find, whatever is chosen: what proofs are made from.

Lower times and less memory never make a schedule longer: whatever runs with some stages recomputing
runs with the smaller of both variants' amounts too. So a bound of theirs holds for every choice.
"""

from __future__ import annotations

from dataclasses import replace

from pipesat.core.stage import COSTS
from pipesat.layers.layer import Layer, Layers
from pipesat.layers.linear_costs import shortest_backward
from pipesat.layers.pipeline import Pipeline
from pipesat.placement.documents import Costs


def cheapest(layers: Layers) -> Layers:
    """Return the layers with the smaller of every amount, and nothing to choose."""
    if not layers.recomputable:
        return layers
    return replace(layers, layers=tuple(map(_cheapest, layers.layers)))


def certain(layers: Layers, shape: Pipeline) -> Layers:
    """Return the cheapest layers with no more memory than any stage that has them surely needs.

    Layers whose forward and backward take no time may hold nothing, as an interval of length zero
    holds nothing. Weights with a copy per device are there once if both layers are on one.
    """
    least, static = cheapest(layers), [*layers.static]
    for tie in layers.ties:
        if tie.copies:
            static[tie.other] -= tie.memory
    kept = {tie.other: tie.memory for tie in layers.ties if not tie.copies}
    return replace(
        least,
        recipe=None,
        layers=tuple(
            replace(
                layer,
                costs=_holding_nothing(layer.costs)
                if _instant(least, layer, shape)
                else layer.costs,
                weights=static[number],
                tied_to=layer.tied_to if number in kept else "",
                tied_weights=kept.get(number, 0),
            )
            for number, layer in enumerate(least.layers)
        ),
    )


def _instant(layers: Layers, layer: Layer, shape: Pipeline) -> bool:
    return layer.amount("F") == shortest_backward(layers, layer, shape) == 0


def _holding_nothing(costs: Costs) -> Costs:
    return replace(costs, held_after_F=0, held_after_B=0)


def variants(layers: Layers) -> tuple[Layers, ...]:
    """The layers as they are, and as they are on a stage that recomputes; each without a choice."""
    plain = replace(layers, layers=tuple(replace(x, recomputed=None) for x in layers.layers))
    if not layers.recomputable:
        return (plain,)
    again = (replace(x, costs=x.recomputed or x.costs, recomputed=None) for x in layers.layers)
    return plain, replace(layers, layers=tuple(again))


def _cheapest(layer: Layer) -> Layer:
    least = {kind: min(layer.amount(kind), layer.amount(kind, recompute=True)) for kind in COSTS}
    return replace(layer, costs=Costs(**least), recomputed=None)
