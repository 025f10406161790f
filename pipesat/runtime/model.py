"""A small transformer, cut into the stages of a pipeline; the same on every process that builds it.

Everything is float64 and seeded per stage, so that a stage's weights do not depend on the cut's
other stages or on which process builds them. All microbatches have the same shapes, because torch
receives into fixed buffers. Every parameter has a gradient that is not zero by symmetry: a bias of
the keys would have none, since softmax does not see it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 11
WIDTH = 16
HEADS = 2
LENGTH = 6
"""Tokens per sequence."""
SEQUENCES = 2
"""Sequences per microbatch."""
_SEED = 20_240_229


class Block(nn.Module):
    """One transformer block: causal attention and a feed-forward layer, both after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.GELU(),
            nn.Linear(2 * WIDTH, WIDTH),
        )

    def forward(self, x: Any) -> Any:
        """Map activations to activations, both (sequences, tokens, width)."""
        heads = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).flatten(-2))
        return x + self.feed_forward(x)


class Embedding(nn.Module):
    """Tokens (sequences, tokens) to activations: a row per word plus one per position."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH))

    def forward(self, tokens: Any) -> Any:
        """Embed tokens."""
        return self.word(tokens) + self.position


def build_stage(stage: int, stages: int) -> nn.Module:
    """Build one stage: a block, with the embedding before it or norm and head after it."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(_SEED + stage)
    module = nn.Sequential()
    if stage == 0:
        module.add_module("embedding", Embedding())
    module.add_module("block", Block())
    if stage == stages - 1:
        module.add_module("norm", nn.LayerNorm(WIDTH))
        module.add_module("head", nn.Linear(WIDTH, VOCABULARY))
    return module


def whole_batch(microbatches: int) -> tuple[Any, Any]:
    """Return tokens and targets of all microbatches, (microbatches x sequences, tokens) each."""
    generator = torch.Generator().manual_seed(_SEED - 1)
    shape = (2, microbatches * SEQUENCES, LENGTH)
    tokens, targets = torch.randint(VOCABULARY, shape, generator=generator)
    return tokens, targets


def loss_of(output: Any, target: Any) -> Any:
    """Mean cross-entropy of one microbatch."""
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())
