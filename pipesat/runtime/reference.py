"""The reference: the same model and batch in one process, by plain autograd."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipesat.runtime.job import job_file, read_job
from pipesat.runtime.model import Transformer
from pipesat.runtime.models import TrainedModel, load_model
from pipesat.runtime.orders import REFERENCE, answer_file, gradient_name, loss_name, read_orders


def run_reference(folder: Path) -> None:
    """Write losses and gradients of every order's model; orders of one shape share one answer."""
    torch.set_num_threads(1)
    model: TrainedModel = (
        load_model(read_job(folder)) if job_file(folder).exists() else Transformer()
    )
    train = lru_cache(lambda stages, microbatches: train_alone(model, stages, microbatches))
    for number, wanted in enumerate(read_orders(folder)):
        np.savez(
            answer_file(folder, REFERENCE, number), **train(wanted.stages, wanted.microbatches)
        )


def train_alone(model: TrainedModel, stages: int, microbatches: int) -> dict[str, Any]:
    """Return the loss of every microbatch, and each parameter's gradient of their mean."""
    modules = [model.build_stage(stage, stages) for stage in range(stages)]
    answer: dict[str, Any] = {}
    parts = (tensor.tensor_split(microbatches) for tensor in model.whole_batch(microbatches))
    for number, (x, target) in enumerate(zip(*parts, strict=True)):
        for module in modules:
            x = module(x)  # noqa: PLW2901
        loss = model.loss_of(x, target)
        (loss / microbatches).backward()
        answer[loss_name(number)] = loss.detach().numpy()
    for stage, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                answer[gradient_name(stage, name)] = parameter.grad.numpy()
    return answer
