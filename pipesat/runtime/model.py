"""A small transformer, cut into the stages of a pipeline; the same on every process that builds it.

Everything is seeded per stage, so that a stage's weights do not depend on the cut's other stages or
on which process builds them. All microbatches have the same shapes, because torch receives into
fixed buffers. Every parameter has a gradient that is not zero by symmetry: a bias of the keys would
have none, since softmax does not see it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pipesat.runtime.job import Shape

_SEED = 20_240_229


class ToyBlock(nn.Module):
    """One transformer block: causal attention and a feed-forward layer, both after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Any) -> Any:
        """Map activations to activations, both (sequences, tokens, width)."""
        heads = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).flatten(-2))
        return x + self.feed_forward(x)


class ToyEmbedding(nn.Module):
    """Tokens (sequences, tokens) to activations: a row per word plus one per position."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Parameter(torch.randn(shape.length, shape.width))

    def forward(self, tokens: Any) -> Any:
        """Embed tokens."""
        return self.word(tokens) + self.position


class Transformer:
    """The model of a shape: its stages, its batch and its loss."""

    def __init__(self, shape: Shape = Shape()) -> None:  # noqa: B008  frozen
        self.shape = shape

    def build_stage(self, stage: int, stages: int) -> nn.Module:
        """Build one stage: blocks, with the embedding before them or norm and head after them."""
        shape = self.shape
        torch.manual_seed(_SEED + stage)
        module = nn.Sequential()
        if stage == 0:
            module.add_module("embedding", ToyEmbedding(shape))
        for number in range(shape.blocks_of(stage)):
            name = f"block{number or ''}"
            module.add_module(name, ToyBlock(shape.width, shape.heads))
        if stage == stages - 1:
            module.add_module("norm", nn.LayerNorm(shape.width))
            module.add_module("head", nn.Linear(shape.width, shape.vocabulary))
        return module.to(getattr(torch, shape.dtype))

    def whole_batch(self, microbatches: int) -> tuple[Any, Any]:
        """Return tokens and targets of all microbatches, (microbatches x sequences, tokens)."""
        generator = torch.Generator().manual_seed(_SEED - 1)
        size = (2, microbatches * self.shape.batch, self.shape.length)
        tokens, targets = torch.randint(self.shape.vocabulary, size, generator=generator)
        return tokens, targets

    def loss_of(self, output: Any, target: Any) -> Any:
        """Mean cross-entropy of one microbatch, computed in float32 at least."""
        scores = output.flatten(0, 1).to(torch.promote_types(output.dtype, torch.float32))
        return functional.cross_entropy(scores, target.flatten())
