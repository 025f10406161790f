"""Which model a run trains: the built-in one, timed waits, a profile's, or one of the user's."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from pipesat.core.errors import BadInput
from pipesat.runtime.job import Job
from pipesat.runtime.layered import imported_model, model_of_profile, transformer

_FUNCTIONS = ("build_stage", "whole_batch", "loss_of")


class TrainedModel(Protocol):
    """What a run needs of a model; a module with three functions of these names will do.

    ``build_stage(stage, stages)`` builds the same ``nn.Module`` on every process.
    ``whole_batch(microbatches)`` returns inputs and targets, whose first dimension is cut into
    microbatches of equal size. ``loss_of(output, target)`` is the loss of one microbatch.
    """

    def build_stage(self, stage: int, stages: int) -> nn.Module: ...  # noqa: D102
    def whole_batch(self, microbatches: int) -> tuple[Any, Any]: ...  # noqa: D102
    def loss_of(self, output: Any, target: Any) -> Any: ...  # noqa: D102


class Waits:
    """Almost nothing to compute: what virtual devices train between their waits."""

    def build_stage(self, stage: int, stages: int) -> nn.Module:
        """Build a stage of four numbers."""
        del stages
        torch.manual_seed(stage)
        return nn.Linear(4, 4, dtype=torch.float64)

    def whole_batch(self, microbatches: int) -> tuple[Any, Any]:
        """Return one row per microbatch."""
        rows = torch.linspace(1, 2, 4 * microbatches, dtype=torch.float64).reshape(-1, 4)
        return rows, rows.flip(0)

    def loss_of(self, output: Any, target: Any) -> Any:
        """Mean squared error."""
        return (output - target).square().mean()


def load_model(job: Job) -> TrainedModel:
    """Return a job's model.

    ``module`` is a profile (``.json``), ``package.module:function`` as ``pipesat profile`` takes
    it, or a module (an import path or a ``.py`` file) with the functions of :class:`TrainedModel`.

    Raises
    ------
    BadInput
        If the user's model cannot be imported or lacks a function.
    """
    if job.virtual is not None:
        return Waits()
    if not job.module:
        return transformer(job.shape, job.order.stages)
    if job.module.endswith(".json"):
        return model_of_profile(Path(job.folder, job.module), job.split)
    if ":" in job.module:
        return imported_model(job.module, job.folder, torch.device("cpu"))
    try:
        model = _imported(job.module, job.folder)
    except Exception as error:
        raise BadInput(
            f"cannot be imported: {type(error).__name__}: {error}", where="model", value=job.module
        ) from error
    for name in _FUNCTIONS:
        if not callable(getattr(model, name, None)):
            raise BadInput(
                f"it has no function {name}, expected {', '.join(_FUNCTIONS)}",
                where="model",
                value=job.module,
            )
    built: TrainedModel = model
    return built


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
