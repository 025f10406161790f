"""Walking through a model once: what passes between its layers, and which of them are alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
        values = [_run(f"layer {model.names[number]}", layer, x) for x in entered]
        one, other = (tuple(value.shape) for value in values)
        if one != other:
            raise BadInput(
                f"layer {model.names[number]} returns shape {one} for microbatch 0 and {other} "
                "for microbatch 1, expected equal ones: torch receives every microbatch into a "
                "buffer of the first one's shape"
            )
        signature = known or (
            _signature(layer),
            str(spec(entered[0])),
            trained,
            number + 1 == count,
        )
        if signature not in kinds:
            name = known or type(layer).__name__
            alike = sum(b.kind.split(" ")[0] == name for b in kinds.values())
            name = name if known or not alike else f"{name} {1 + alike}"
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


@contextmanager
def _tried(what: str) -> Iterator[None]:
    """Say what of the user's failed."""
    try:
        with torch.no_grad():
            yield
    except BadInput:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise BadInput(f"{what}: {type(error).__name__}: {first}") from error


def _input(model: LayeredModel, microbatch: int) -> Any:
    where = f"microbatch({microbatch})"
    with _tried(f"{where} failed"):
        value, _ = model.microbatch(microbatch)
    if not isinstance(value, torch.Tensor):
        raise BadInput("expected one tensor as input", where=where, value=type(value).__name__)
    return value


def _run(name: str, layer: nn.Module, x: Any) -> Any:
    with _tried(f"{name} failed on {spec(x)}"):
        output = layer(x)
    if not isinstance(output, torch.Tensor):
        several = f" of {len(output)}" if isinstance(output, tuple | list) else ""
        raise BadInput(
            f"{name} returns a {type(output).__name__}{several}, expected one tensor: between "
            "pipeline stages pipesat counts one activation. Put the layers that pass more into one "
            "layer"
        )
    return output


def _check_loss(model: LayeredModel, output: Any) -> None:
    with _tried(f"the loss failed on {spec(output)}"):
        loss = model.loss(output, model.microbatch(0)[1])
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
