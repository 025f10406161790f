"""Profiling a model: its layers by kind, stages of it, and the environment, as a profile document.

Only a child process of the command line, or a caller that has torch anyway, imports this.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from pipesat.core.errors import BadInput, require
from pipesat.layers.profile.costs_file import MeasureOptions
from pipesat.layers.profile.cut import layers_of_stages
from pipesat.layers.profile.profile_file import FORMAT, Profile, parse_profile
from pipesat.measure.processes.memory_modes import Checkpointed, copy_times, measure_modes
from pipesat.measure.processes.meters import clock_and_meter
from pipesat.measure.processes.models import LayeredModel
from pipesat.measure.processes.stage_costs import Subject, measure, parameters_of


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
        require(
            one == other,
            f"layer {model.names[number]} returns shape {one} for microbatch 0 and {other} "
            "for microbatch 1, expected equal ones: torch receives every microbatch into a "
            "buffer of the first one's shape",
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
    require(
        isinstance(value, torch.Tensor),
        "expected one tensor as input",
        where=where,
        value=type(value).__name__,
    )
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
        loss = model.loss_of(output, model.microbatch(0)[1])
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


@dataclass
class Profiler:
    """Measures slices of a model; equal slices once."""

    model: LayeredModel
    options: MeasureOptions
    boundaries: Sequence[Boundary]
    done: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock, self.meter = clock_and_meter(self.options.device)

    def costs(self, layers: range) -> dict[str, Any]:
        """Measure a slice, or return what an equal one had."""
        key = tuple(self.boundaries[layer].kind for layer in layers)
        if key not in self.done:
            self.done[key] = self._measured(layers)
        return self.done[key]

    def _measured(self, layers: range) -> dict[str, Any]:
        first, last = self.boundaries[layers.start], self.boundaries[layers.stop - 1]
        modules = self.model.build(layers)
        parameters = parameters_of(p for module in modules for p in module.parameters())
        buffers = sum(b.numel() * b.element_size() for m in modules for b in m.buffers())
        whole = nn.Sequential(*map(self._variant, modules, layers))
        loss_of = None
        if layers.stop == len(self.boundaries):
            target = self.model.microbatch(0)[1]

            def loss_of(output: Any) -> Any:
                return self.model.loss_of(output, target)

        subject = Subject(
            self._name(layers),
            whole,
            first.x,
            first.input_gradient,
            loss_of,
            self.clock,
            self.meter,
        )
        self.clock.host_bound = False
        options = self.options
        costs = measure(subject, samples=options.samples, warmup=options.warmup)
        if options.modes:
            costs |= measure_modes(subject, samples=options.samples, warmup=options.warmup)
        return costs | {
            "input": first.input,
            "output": last.output,
            "parameters": parameters,
            "buffers": buffers,
            "host_bound": self.clock.host_bound,
        }

    def _variant(self, module: nn.Module, layer: int) -> nn.Module:
        """Checkpoint and compile layers between the first and the last, as trainers usually do."""
        if layer in (0, len(self.boundaries) - 1):
            return module
        if self.options.checkpoint:
            module = Checkpointed(module)
        if self.options.compile:
            torch._dynamo.reset()
            module = torch.compile(module, backend=self.options.compile)
        return module

    def _name(self, layers: range) -> str:
        names = self.model.names
        if len(layers) == 1:
            return f"layer {names[layers.start]}"
        return f"layers {names[layers.start]} to {names[layers.stop - 1]}"


def profile_layers(model: LayeredModel, source: dict[str, Any], options: MeasureOptions) -> Profile:
    """Measure a model's kinds of layers, and the stages of every number that is asked for."""
    require(
        not options.modes or not options.checkpoint,
        "checkpointed layers recompute in every mode: leave one out",
        where="modes",
    )
    require(
        max(options.stages, default=0) <= len(model.names),
        f"the model has {len(model.names)} layers, expected at most as many stages",
        where="stages",
        value=max(options.stages, default=0),
    )
    with _threads(options.threads), _collecting_little():
        boundaries = walk(model)
        profiler = Profiler(model, options, boundaries)
        kinds = {
            boundary.kind: profiler.costs(range(number, number + 1))
            for number, boundary in enumerate(boundaries)
        }
        document = {
            "format": FORMAT,
            "name": options.name,
            "model": source,
            "environment": _environment(options, boundaries, kinds),
            "options": {
                "checkpoint": options.checkpoint,
                "compile": options.compile,
                "modes": options.modes,
                "samples": options.samples,
                "warmup": options.warmup,
            },
            "microbatch": _microbatch(model),
            "layers": [
                {"name": name, "kind": boundary.kind}
                for name, boundary in zip(model.names, boundaries, strict=True)
            ],
            "kinds": kinds,
            "copies": copy_times(options.device, options.samples) if options.modes else None,
            "tied": [
                {"name": name, "layers": layers, "parameter": parameters_of([p])[0]}
                for name, layers, p in model.shared
            ],
        }
        profile = parse_profile(document)
        slices = dict.fromkeys(
            layers
            for stages in options.stages
            for split in options.splits
            for layers in layers_of_stages(profile, stages, split)
        )
        stages = [
            {"layers": [layers.start, layers.stop], "costs": profiler.costs(layers)}
            for layers in slices
            if len(layers) > 1
        ]
    return parse_profile(document | {"stages": stages})


def _microbatch(model: LayeredModel) -> dict[str, Any]:
    value, target = model.microbatch(0)
    tensor = target if isinstance(target, torch.Tensor) else None
    return {"input": spec(value), "target": None if tensor is None else spec(tensor)}


def require_device(device: str) -> None:
    """Pass if the device is there."""
    if device == "cuda" and not torch.cuda.is_available():
        built = "is built without CUDA" if torch.version.cuda is None else "finds no CUDA device"
        raise BadInput(
            f"torch {torch.__version__} {built}. Take device cpu, or run this on the GPU machine",
            where="device",
            value=device,
        )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _collecting_little() -> Iterator[None]:
    """Spare the collector what is there: collecting after every sample gets cheap."""
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:  # else all that the caller froze would thaw, too
            gc.unfreeze()


def _environment(
    options: MeasureOptions, boundaries: Sequence[Boundary], kinds: dict[str, Any]
) -> dict[str, Any]:
    cuda = options.device == "cuda"
    processor = f"{platform.machine()}, {os.cpu_count()} cores"
    kept = [kinds[boundary.kind]["output"]["dtype"] for boundary in boundaries[:-1]]
    return {
        "device": options.device,
        "device_name": torch.cuda.get_device_name() if cuda else processor,
        "dtype": kept[0] if kept else boundaries[0].output["dtype"],
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda if cuda else None,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "pipesat": importlib.metadata.version("pipesat"),
    }
