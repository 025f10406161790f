"""The reference: the same model and batch in one process, by plain autograd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pipesat.runtime.answers import Answer
from pipesat.runtime.job import read_jobs
from pipesat.runtime.models import TrainedModel, load_model
from pipesat.runtime.orders import REFERENCE, TorchOrder, answer_file

_COARSE = 2  # bytes of a number: sums of them depend on their order where one can see it


def run_reference(folder: Path) -> None:
    """Write losses and gradients of every checked job's model."""
    torch.set_num_threads(1)
    for number, job in enumerate(read_jobs(folder)):
        if job.check:
            train_alone(load_model(job), job.order).write(answer_file(folder, REFERENCE, number))


def train_alone(model: TrainedModel, wanted: TorchOrder) -> Answer:
    """Return the loss of every microbatch, and each parameter's gradient of their mean.

    Gradients of 16 bits are added in the order in which the run adds those of their stage, if need
    be in one pass per order: what is left of a difference is then a fault and not a rounding.
    """
    modules = {stage: model.build_stage(stage, wanted.stages) for stage in range(wanted.stages)}
    turns = dict.fromkeys(modules, tuple(range(wanted.microbatches)))
    if any(p.element_size() <= _COARSE for m in modules.values() for p in m.parameters()):
        turns = dict(enumerate(wanted.weight_turns))
    answers = []
    for turn in dict.fromkeys(turns.values()):
        losses = _pass(model, list(modules.values()), turn)
        answers.append(Answer.of(losses, {s: m for s, m in modules.items() if turns[s] == turn}))
    return Answer.all_of(answers)


def _pass(model: TrainedModel, modules: list[Any], turn: tuple[int, ...]) -> dict[int, Any]:
    """Train all microbatches in turn, from no gradients on; return their losses."""
    for module in modules:
        module.zero_grad()  # new ones: answers still have the old
    parts = [tensor.tensor_split(len(turn)) for tensor in model.whole_batch(len(turn))]
    batch = list(zip(*parts, strict=True))
    losses = {}
    for number in turn:
        x, target = batch[number]
        for module in modules:
            x = module(x)
        loss = model.loss_of(x, target)
        (loss / len(turn)).backward()
        losses[number] = loss.detach()
    return losses
