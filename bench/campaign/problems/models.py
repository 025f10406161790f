"""Random models for ``run --model``, as Python files, some with a fault that loses gradients."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

MODEL = """\
import torch
from torch import distributed, nn

DTYPE, FAULTS, LOST_IN = torch.{dtype}, {faults!r}, {lost_in}


class Stage(nn.Module):
    def __init__(self, number):
        super().__init__()
        torch.manual_seed({seed} + number)
        self.fault, self.calls = FAULTS.get(number), 0
        self.layer = nn.Linear({width}, {width})
        self.scale = nn.Parameter(torch.ones({width}), requires_grad=self.fault != "frozen")
        if self.fault == "unused":
            self.spare = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.calls += 1
        scale = self.scale
        if self.fault == "put away":  # as FSDP: the graph has another tensor than parameters()
            scale = nn.Parameter(scale.detach().clone())

            def hand_over(used, held=self.scale):
                held.grad = used.grad if held.grad is None else held.grad + used.grad
                used.grad = None

            scale.register_post_accumulate_grad_hook(hand_over)
        y = torch.tanh(self.layer(x)) * scale
        if self.fault == "lost" and distributed.is_initialized() and self.calls == LOST_IN:
            y = y.detach() + 0 * x + 0 * scale
        return y


def build_stage(stage, stages):
    return Stage(stage).to(DTYPE)


def whole_batch(m):
    batch = torch.randn(2, m * {rows}, {width}, generator=torch.Generator().manual_seed({seed}))
    return batch.to(DTYPE)


def loss_of(output, target):
    difference = (output - target).to(torch.promote_types(DTYPE, torch.float32))
    return difference.square().mean()
"""
PARAMETERS = ("layer.weight", "layer.bias", "scale")


def model(rng: Random, dtype: str, faults: Mapping[int, str], microbatches: int) -> str:
    """Return the file; a lost microbatch is one of the second step, after one that finds shapes."""
    return MODEL.format(
        dtype=dtype,
        faults=dict(faults),
        lost_in=1 + microbatches + rng.randint(1, microbatches),
        seed=rng.randrange(1000),
        width=rng.choice([4, 8, 16]),
        rows=rng.choice([1, 2, 8]),
    )
