"""The reference: the same model and batch in one process, by plain autograd."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pipesat.runtime.model import LENGTH, SEQUENCES, build_stage, whole_batch
from pipesat.runtime.plan import REFERENCE, answer_file, gradient_name, loss_name, read_plans

_AT_ONCE = 64  # microbatches: bounds the memory


def run_reference(folder: Path) -> None:
    """Write losses and gradients of every plan's model; plans of one shape share one answer."""
    torch.set_num_threads(1)
    train = lru_cache(train_alone)
    for number, plan in enumerate(read_plans(folder)):
        np.savez(answer_file(folder, REFERENCE, number), **train(plan.stages, plan.microbatches))


def train_alone(stages: int, microbatches: int) -> dict[str, Any]:
    """Return the loss of every microbatch, and each parameter's gradient of their mean.

    Many microbatches go through the model at once: nothing here depends on how they are cut.
    """
    modules = [build_stage(stage, stages) for stage in range(stages)]
    losses: list[Any] = []
    parts = (tensor.split(_AT_ONCE * SEQUENCES) for tensor in whole_batch(microbatches))
    for tokens, targets in zip(*parts, strict=True):
        x = tokens
        for module in modules:
            x = module(x)
        words = functional.cross_entropy(x.flatten(0, 1), targets.flatten(), reduction="none")
        means = words.unflatten(0, (-1, SEQUENCES * LENGTH)).mean(1)
        (means.sum() / microbatches).backward()
        losses += means.detach()
    answer = {loss_name(i): loss.numpy() for i, loss in enumerate(losses)}
    for stage, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            answer[gradient_name(stage, name)] = parameter.grad.numpy()
    return answer
