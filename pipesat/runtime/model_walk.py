"""Walking through a model once: what passes between its layers, and which of them are alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pipesat.core.errors import BadInput
from pipesat.runtime.models import LayeredModel


@dataclass(frozen=True)
class Boundary:
    """One layer, seen from outside.

    Attributes
    ----------
    x
        An input: that of the first layer of its kind.
    input_gradient
        Whether the input needs a gradient: something before it is trained.
    kind
        Name that layers of equal costs share.
    """

    x: Any
    input: dict[str, Any]
    output: dict[str, Any]
    input_gradient: bool
    kind: str


def walk(model: LayeredModel) -> list[Boundary]:
    """Run two microbatches forward, layer by layer."""
    count = len(model.names)
    values = [_input(model, number) for number in (0, 1)]
    boundaries: list[Boundary] = []
    kinds: dict[Any, Boundary] = {}
    trained = False  # whether something so far is
    for number in range(count):
        known = model.kinds[number] if model.kinds else None
        if known and boundaries and boundaries[-1].kind == known:
            boundaries.append(boundaries[-1])  # a block like the last: same shapes in and out
            continue
        (layer,) = model.build(range(number, number + 1))
        entered = values
        values = [_run(model, number, layer, x) for x in entered]
        _require_same_shape(model, number, values)
        signature = known or (
            _signature(layer),
            str(spec(entered[0])),
            trained,
            number + 1 == count,
        )
        if signature not in kinds:
            name = known or _free_name(type(layer).__name__, [b.kind for b in kinds.values()])
            kinds[signature] = Boundary(
                entered[0], spec(entered[0]), spec(values[0]), trained, name
            )
        boundaries.append(kinds[signature])
        trained = trained or any(p.requires_grad for p in layer.parameters())
    _check_loss(model, values[0])
    return boundaries


def spec(tensor: Any) -> dict[str, Any]:
    """Describe a tensor."""
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "bytes": tensor.numel() * tensor.element_size(),
    }


def _input(model: LayeredModel, microbatch: int) -> Any:
    try:
        value, _ = model.microbatch(microbatch)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"microbatch({microbatch}) failed: {_reason(error)}") from error
    if not isinstance(value, torch.Tensor):
        raise BadInput(
            "expected one tensor as input",
            where=f"microbatch({microbatch})",
            value=type(value).__name__,
        )
    return value


def _run(model: LayeredModel, number: int, layer: nn.Module, x: Any) -> Any:
    name = f"layer {model.names[number]}"
    try:
        with torch.no_grad():
            output = layer(x)
    except Exception as error:
        raise BadInput(f"{name} failed on {spec(x)}: {_reason(error)}") from error
    if not isinstance(output, torch.Tensor):
        raise BadInput(
            f"{name} returns {_several(output)}, expected one tensor: between pipeline stages "
            "pipesat counts one activation. Put the layers that pass more into one layer"
        )
    return output


def _several(output: Any) -> str:
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {len(output)}"
    return f"a {type(output).__name__}"


def _require_same_shape(model: LayeredModel, number: int, values: list[Any]) -> None:
    shapes = [tuple(value.shape) for value in values]
    if shapes[0] != shapes[1]:
        raise BadInput(
            f"layer {model.names[number]} returns shape {shapes[0]} for microbatch 0 and "
            f"{shapes[1]} for microbatch 1, expected equal ones: torch receives every microbatch "
            "into a buffer of the first one's shape"
        )


def _check_loss(model: LayeredModel, output: Any) -> None:
    try:
        with torch.no_grad():
            loss = model.loss(output, model.microbatch(0)[1])
    except Exception as error:
        raise BadInput(f"the loss failed on {spec(output)}: {_reason(error)}") from error
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise BadInput(
            "expected a tensor with one number",
            where="loss",
            value=tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__,
        )
    if not bool(torch.isfinite(loss).all()):
        raise BadInput(
            f"the loss of microbatch 0 is {float(loss)}, expected a finite number: times of "
            "numbers that are none say little"
        )


def _signature(layer: nn.Module) -> tuple[Any, ...]:
    """Everything about a layer that its costs may depend on: equal ones are measured once."""
    tensors = [
        (name, tuple(t.shape), t.dtype, t.requires_grad)
        for named in (layer.named_parameters(), layer.named_buffers())
        for name, t in named
    ]
    plain = [
        (name, key, repr(value))
        for name, module in layer.named_modules()
        for key, value in sorted(vars(module).items())
        if isinstance(value, bool | int | float | str | tuple | type(None))
    ]
    return type(layer).__qualname__, repr(layer), tuple(tensors), tuple(plain)


def _free_name(name: str, taken: list[str]) -> str:
    number = 1 + sum(kind == name or kind.startswith(f"{name} ") for kind in taken)
    return name if number == 1 else f"{name} {number}"


def _reason(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"
