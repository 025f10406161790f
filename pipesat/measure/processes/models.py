"""Models that run or are measured: layers that can be cut anywhere, or the user's own."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from pipesat.core.errors import BadInput, require
from pipesat.layers.profile.cut import layers_of_stages
from pipesat.layers.profile.profile_file import ModelModel, Profile, read_profile
from pipesat.layers.profile.published import DecoderShape
from pipesat.measure.processes.decoder import build_layer, cross_entropy, tokens_and_targets
from pipesat.measure.processes.job import Job, Shape
from pipesat.problem.partition import even, partition_of

_SEED = 20_260_802
_KEYS = ("layers", "microbatch", "loss")


@dataclass(frozen=True)
class LayeredModel:
    """Layers, each mapping one tensor to one tensor, with a batch and a loss.

    Attributes
    ----------
    names
        One per layer.
    kinds
        Layers of equal kinds cost the same; empty: to be found out.
    build
        Returns the layers of a range as modules of their own, on the device.
    microbatch
        Returns input and target of one microbatch.
    loss_of
        Loss of output and target.
    shared
        Name and layers of every parameter that stands in several layers.
    cut
        Layers of each of so many stages; evenly if not given.
    """

    names: Sequence[str]
    kinds: Sequence[str]
    build: Callable[[range], list[nn.Module]]
    microbatch: Callable[[int], tuple[Any, Any]]
    loss_of: Callable[[Any, Any], Any]
    shared: Sequence[tuple[str, list[int], Any]] = ()
    cut: Callable[[int], Sequence[range]] | None = field(default=None, repr=False)

    def build_stage(self, stage: int, stages: int) -> nn.Module:
        """Build one of so many stages; the same weights on every process."""
        cut = self.cut or partial(even, len(self.names))
        return nn.Sequential(*self.build(cut(stages)[stage]))

    def whole_batch(self, microbatches: int) -> tuple[Any, Any]:
        """Return inputs and targets of all microbatches, one after the other."""
        parts = [self.microbatch(number) for number in range(microbatches)]
        inputs, targets = zip(*parts, strict=True)
        return torch.cat(inputs), torch.cat(targets)


def decoder_model(
    shape: DecoderShape, sequences: int, length: int, dtype: Any, device: Any
) -> LayeredModel:
    """Return the built-in decoder; blocks are all of one kind."""
    return LayeredModel(
        names=["embedding", *(f"block {i}" for i in range(shape.layers)), "head"],
        kinds=["embedding", *["block"] * shape.layers, "head"],
        build=lambda layers: [build_layer(shape, length, i, dtype, device) for i in layers],
        microbatch=lambda i: tokens_and_targets(shape, sequences, length, i, device),
        loss_of=cross_entropy,
    )


def transformer(shape: Shape, stages: int) -> LayeredModel:
    """Return the decoder that runs where the user names no model, cut as its shape says."""
    blocks = shape.blocks * stages if len(shape.blocks) == 1 else shape.blocks
    sizes = DecoderShape(
        style="gpt",
        layers=sum(blocks),
        width=shape.width,
        heads=shape.heads,
        kv_heads=shape.heads,
        feed_forward=2 * shape.width,
        vocabulary=shape.vocabulary,
    )
    dtype, device = getattr(torch, shape.dtype), torch.device("cpu")
    model = decoder_model(sizes, shape.batch, shape.length, dtype, device)
    inner = accumulate(blocks[:-1], initial=1)  # the embedding is the first layer
    ends = [0, *[*inner][1:], len(model.names)]
    return replace(model, cut=lambda _: partition_of(ends))


def own_model(
    layers: Sequence[nn.Module],
    microbatch: Callable[[int], tuple[Any, Any]],
    loss: Callable[[Any, Any], Any],
    device: Any,
    dtype: Any = None,
) -> LayeredModel:
    """Return the user's layers as a model; they are copied wherever they are measured."""
    if not isinstance(layers, nn.ModuleList | nn.Sequential | list | tuple) or not len(layers):
        raise BadInput(
            "expected a list of torch.nn.Module with at least one entry",
            where="layers",
            value=type(layers).__name__,
        )
    for number, layer in enumerate(layers):
        require(
            isinstance(layer, nn.Module),
            "expected a torch.nn.Module",
            where=f"layers[{number}]",
            value=type(layer).__name__,
        )

    def build(part: range) -> list[nn.Module]:
        copies = copy.deepcopy([layers[i] for i in part])  # at once: what they share stays shared
        return [layer.to(device=device, dtype=dtype) for layer in copies]

    def placed(number: int) -> tuple[Any, Any]:
        pair = microbatch(number)
        require(
            isinstance(pair, tuple) and len(pair) == 2,
            "expected a tuple of input and target",
            where=f"microbatch({number})",
            value=type(pair).__name__,
        )
        return _moved(pair[0], device, dtype), _moved(pair[1], device, dtype)

    return LayeredModel(
        names=[f"{i} {type(layer).__name__}" for i, layer in enumerate(layers)],
        kinds=[],
        build=build,
        microbatch=placed,
        loss_of=loss,
        shared=_shared(layers),
    )


def _moved(value: Any, device: Any, dtype: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device=device, dtype=dtype if value.is_floating_point() else None)


def _shared(layers: Sequence[nn.Module]) -> list[tuple[str, list[int], Any]]:
    """Find every parameter that stands in several layers."""
    homes: dict[int, tuple[str, list[int], Any]] = {}
    for number, layer in enumerate(layers):
        for name, parameter in layer.named_parameters():
            entry = homes.setdefault(id(parameter), (f"{number}.{name}", [], parameter))
            entry[1].append(number)
    return [entry for entry in homes.values() if len(entry[1]) > 1]


def imported_model(path: str, folder: str, device: Any, dtype: Any = None) -> LayeredModel:
    """Import ``package.module:function``, call it, and take what it returns as a model.

    The function returns ``{"layers": [...], "microbatch": f, "loss": g}``; ``f(i)`` returns input
    and target of microbatch i, ``g(output, target)`` its loss.
    """
    module, _, name = path.partition(":")
    require(module and name, "expected package.module:function", where="model", value=path)
    try:
        function = getattr(_imported(module, folder), name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)  # the same weights on every process
            returned = function()
    except Exception as error:
        raise BadInput(
            f"cannot be imported and called: {type(error).__name__}: {error}",
            where="model",
            value=path,
        ) from error
    if not isinstance(returned, dict) or sorted(returned) != sorted(_KEYS):
        got = sorted(map(str, returned)) if isinstance(returned, dict) else type(returned).__name__
        raise BadInput(
            f"it returned {got}, expected a dict with the keys {', '.join(_KEYS)}",
            where="model",
            value=path,
        )
    try:
        return own_model(
            returned["layers"], returned["microbatch"], returned["loss"], device, dtype
        )
    except BadInput as error:
        raise BadInput(f"of what it returned, {error}", where="model", value=path) from None


def model_of_profile(profile: str | Path | Profile, split: str = "even") -> LayeredModel:
    """Build a profile's model again, cut as ``pipesat problem from-profile`` cuts it.

    A module of the user's is looked for beside the profile file too.

    Three of its methods are what ``pipesat run --model`` wants of a module: ``build_stage``,
    ``whole_batch`` and ``loss_of``.
    """
    folder = Path.cwd()
    if isinstance(profile, Profile):
        data = profile
    else:
        data, folder = read_profile(profile), Path(profile).resolve().parent
    model = data.model
    require(
        model.source != "call",
        "the profiled model was handed over by a Python call: build it there",
    )
    dtype = data.environment.dtype if model.source == "decoder" else model.dtype
    built = profiled_model(model, str(folder), dtype, torch.device("cpu"))
    return replace(built, cut=lambda stages: layers_of_stages(data, stages, split))


def profiled_model(model: ModelModel, folder: str, dtype: str, device: Any) -> LayeredModel:
    """Build the decoder or the user's model that a profile is of, or is to be of."""
    of = getattr(torch, dtype) if dtype else None
    if model.source == "import":
        return imported_model(model.path, folder, device, of)
    shape = DecoderShape(**model.shape)  # type: ignore[arg-type]
    return decoder_model(shape, model.sequences, model.length, of or torch.float32, device)


_FUNCTIONS = ("build_stage", "whole_batch", "loss_of")


class TrainedModel(Protocol):
    """What a run needs of a model; a module with three functions of these names will do.

    ``build_stage(stage, stages)`` builds the same ``nn.Module`` on every process.
    ``whole_batch(microbatches)`` returns inputs and targets, whose first dimension is cut into
    microbatches of equal size. ``loss_of(output, target)`` is the loss of one microbatch.
    """

    def build_stage(self, stage: int, stages: int) -> nn.Module: ...  # noqa: D102
    def whole_batch(self, microbatches: int) -> tuple[Any, Any]: ...  # noqa: D102
    def loss_of(self, output: Any, target: Any, /) -> Any: ...  # noqa: D102


def load_model(job: Job) -> TrainedModel:
    """Return a job's model.

    ``module`` is a profile (``.json``), ``package.module:function`` as ``pipesat profile`` takes
    it, or a module (an import path or a ``.py`` file) with the functions of :class:`TrainedModel`.
    """
    if not job.module:
        return transformer(job.shape, job.order.stages)
    if job.module.endswith(".json"):
        return model_of_profile(Path(job.folder, job.module), job.split)
    if ":" in job.module:
        return imported_model(job.module, job.folder, torch.device("cpu"))
    try:
        model: TrainedModel = _imported(job.module, job.folder)
    except Exception as error:
        raise BadInput(
            f"cannot be imported: {type(error).__name__}: {error}", where="model", value=job.module
        ) from error
    for name in _FUNCTIONS:
        require(
            callable(getattr(model, name, None)),
            f"it has no function {name}, expected {', '.join(_FUNCTIONS)}",
            where="model",
            value=job.module,
        )
    return model


def _imported(name: str, folder: str) -> Any:
    sys.path.insert(0, folder)
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(folder, name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
