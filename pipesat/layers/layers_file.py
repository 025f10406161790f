"""Layers files, ``pipesat.layers/1``: every value checked, every complaint with its path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from pipesat.core.arguments import public
from pipesat.core.complaint import Says, validated
from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.strict_json import Amount, Count, StrictModel, read_json
from pipesat.layers.layer import KEPT, Layer, Layers, Role, TieKind, WeightMemory
from pipesat.layers.megatron import HYBRID_LAYER, HYBRID_SYMBOLS
from pipesat.problem.costs import Costs
from pipesat.problem.stage import COSTS

MOST_LAYERS: Final = 4096

_Name = Annotated[str, Field(min_length=1)]
_Thousandths = Annotated[int, Field(ge=1, le=10**6)]


_HYBRID: Final = f"symbols of Megatron-LM's hybrid layers, of {HYBRID_SYMBOLS}"


class CostsModel(StrictModel):
    """Costs of a layer, or of its variant with recomputation; ``BW`` defaults to ``B + W``."""

    F: Amount
    B: Amount
    W: Amount
    BW: Amount | None = None
    held_after_F: Amount = 0
    held_after_B: Amount = 0


class LayerModel(CostsModel):
    """One entry of ``layers``; ``repeat`` of them in a row are named ``<name> <i>``."""

    name: _Name | None = None
    repeat: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = 1
    weights: Amount = 0
    output: Amount = 0
    role: Role = "block"
    first: bool = False
    last: bool = False
    with_next: bool = False
    fused: bool = False
    tied_to: _Name | None = None
    tie: TieKind = "same_device"
    tied_weights: Amount | None = None
    recompute: CostsModel | None = None
    hybrid: Annotated[str, Field(pattern=HYBRID_LAYER), Says(_HYBRID)] = ""


class LayersModel(StrictModel):
    """The whole document."""

    format: Literal["pipesat.layers/1"]
    name: str = ""
    time_unit: str = ""
    memory_unit: str = ""
    size_unit: str = ""
    estimate: str = ""
    estimate_range: Annotated[list[_Thousandths], Field(min_length=2, max_length=2)] | None = None
    tensor_parallel: Count = 1
    batch: Count = 1
    reserve: Amount = 0
    static: WeightMemory | None = None
    layers: Annotated[list[LayerModel], Field(min_length=1, max_length=MOST_LAYERS)]


@public
def read_layers(path: str | Path) -> Layers:
    """Read and validate a layers file.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    return parse_layers(read_json(Path(path)), str(path))


def parse_layers(document: object, source: str = "layers") -> Layers:
    """Validate a layers document (what ``json.loads`` returns)."""
    model = validated(document, LayersModel, source)
    with said_of(source):
        return _layers(model)


def _layers(model: LayersModel) -> Layers:
    found: list[Layer] = []
    entry_of: dict[str, int] = {}
    for number, entry in enumerate(model.layers):
        if len(found) + entry.repeat > MOST_LAYERS:
            expected = f"expected at most {MOST_LAYERS} layers in all"
            raise BadInput(expected, where=f"layers[{number}].repeat", value=entry.repeat)
        for layer in _layers_of(entry, len(found), number):
            if layer.name in entry_of:
                raise BadInput(
                    f"expected another name, layers[{entry_of[layer.name]}] has this one",
                    where=f"layers[{number}].name",
                    value=layer.name,
                )
            entry_of[layer.name] = number
            found.append(layer)
    _check_ties(model, entry_of)
    between = model.estimate_range
    require(not between or model.estimate, "needs estimate", where="estimate_range")
    require(
        not between or between[0] <= 1000 <= between[1],
        "expected the least, at most 1000, and the most, at least 1000",
        where="estimate_range",
        value=between,
    )
    layers = Layers(
        tuple(found),
        model.name,
        model.time_unit,
        model.memory_unit,
        model.size_unit,
        model.reserve,
        model.static,
        model.estimate,
        (between[0], between[1]) if between else None,
        model.tensor_parallel,
        model.batch,
    )
    _check_flags(layers, entry_of)
    return layers


def _layers_of(entry: LayerModel, begin: int, number: int) -> Iterator[Layer]:
    """Layers of one entry, the first of them number ``begin``."""
    kept = {key: getattr(entry, key) for key in KEPT} | {"entry": number}
    tied = entry.weights if entry.tied_weights is None else entry.tied_weights
    if entry.tied_to is not None:
        kept |= {"tied_to": entry.tied_to, "tie": entry.tie, "tied_weights": tied}
    again = None if entry.recompute is None else _costs(entry.recompute)
    repeated = "repeat" in entry.model_fields_set
    for i in range(entry.repeat):
        name = f"{entry.name} {i}" if repeated else entry.name
        if entry.name is None:
            name = f"layer {begin + i}"
        yield Layer(name or "", _costs(entry), recomputed=again, **kept)


def _costs(model: CostsModel) -> Costs:
    return Costs(**{key: getattr(model, key) for key in COSTS})


def _check_ties(model: LayersModel, entry_of: dict[str, int]) -> None:
    for number, entry in enumerate(model.layers):
        where = f"layers[{number}]"
        given = entry.model_fields_set
        if entry.tied_to is None:
            for key in ("tie", "tied_weights"):
                require(key not in given, "needs tied_to", where=f"{where}.{key}")
            continue
        require(
            entry_of.get(entry.tied_to) not in (None, number),
            "expected the name of another layer",
            where=f"{where}.tied_to",
            value=entry.tied_to,
        )
        require(
            entry.tied_weights is None or entry.tied_weights <= entry.weights,
            f"expected at most the layer's weights, {entry.weights}",
            where=f"{where}.tied_weights",
            value=entry.tied_weights,
        )


def _check_flags(layers: Layers, entry_of: dict[str, int]) -> None:
    """Refuse flags that leave a single stage for all layers, or say nothing."""
    first, last = layers.first_stage_until - 1, layers.last_stage_from
    if first >= last:
        which = "the same layer" if first == last else f"{layers.label(last)}, before it,"
        raise BadInput(
            f"{layers.label(first)} must be on the first stage but {which} on the last",
            where=f"layers[{entry_of[layers.layers[first].name]}].first",
        )
    for layer in layers.layers:
        inner = layer.role in ("block", "mtp")
        if bool(layer.hybrid) != (inner and layers.hybrid):
            expected = "expected symbols of every block and mtp layer, and of no other one"
            raise BadInput(
                expected, where=f"layers[{entry_of[layer.name]}].hybrid", value=layer.hybrid
            )
    require(
        not layers.layers[-1].with_next,
        "the last layer has no next one",
        where=f"layers[{entry_of[layers.layers[-1].name]}].with_next",
    )
