"""A decoder-only language model as a list of layers: embedding, blocks, head.

Real kernels: attention through ``scaled_dot_product_attention``, dense matrix products, fused norms
where torch has them. Every layer maps one tensor to one tensor, so that any contiguous slice is a
pipeline stage. Layers are built one at a time, each from its own seed: a stage needs no more than
its own, and every process builds the same weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pipesat.layers.profile.published import DecoderShape

_SEED = 20_260_801
_ROTARY_BASE = 10_000.0


class Embedding(nn.Module):
    """Tokens (sequences, length) to activations (sequences, length, width)."""

    def __init__(self, shape: DecoderShape, length: int) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocabulary, shape.width)
        learned = shape.style == "gpt"
        self.position = nn.Parameter(torch.randn(length, shape.width) / 50) if learned else None

    def forward(self, tokens: Any) -> Any:
        """Embed tokens."""
        x = self.word(tokens)
        return x if self.position is None else x + self.position[: tokens.shape[1]]


class Attention(nn.Module):
    """Causal self-attention; rotary positions and no biases in the llama style."""

    def __init__(self, shape: DecoderShape, length: int) -> None:
        super().__init__()
        gpt = shape.style == "gpt"
        self.width_per_head = shape.width // shape.heads
        self.widths = [
            count * self.width_per_head for count in (shape.heads, *[shape.kv_heads] * 2)
        ]
        self.query_key_value = nn.Linear(shape.width, sum(self.widths), bias=gpt)
        self.projection = nn.Linear(shape.width, shape.width, bias=gpt)
        self.grouped = shape.kv_heads != shape.heads
        self.rotation: Any
        self.register_buffer(
            "rotation", None if gpt else rotary_table(length, self.width_per_head), persistent=False
        )

    def forward(self, x: Any) -> Any:
        """Mix tokens with those before them."""
        parts = self.query_key_value(x).split(self.widths, dim=-1)
        query, key, value = (
            part.unflatten(-1, (-1, self.width_per_head)).transpose(1, 2) for part in parts
        )
        if self.rotation is not None:
            cosine, sine = self.rotation[:, : x.shape[1]]
            query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=self.grouped
        )
        return self.projection(mixed.transpose(1, 2).flatten(-2))


def rotary_table(length: int, width: int) -> Any:
    """Cosines and sines of ``position * base^(-i / (width / 2))``: (2, length, width)."""
    half = width // 2
    frequencies = _ROTARY_BASE ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies).repeat(1, 2)
    return torch.stack([angles.cos(), angles.sin()])


def rotated(x: Any, cosine: Any, sine: Any) -> Any:
    """Turn the pairs (i, i + width / 2) of every head by their angles (Su et al. 2021, RoPE)."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


class FeedForward(nn.Module):
    """Two products around GELU, or three around a SiLU gate."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        gpt = shape.style == "gpt"
        self.gate = None if gpt else nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=gpt)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=gpt)

    def forward(self, x: Any) -> Any:
        """Transform every token alone."""
        if self.gate is None:
            return self.down(functional.gelu(self.up(x)))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def _norm(shape: DecoderShape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.style == "gpt" else nn.RMSNorm(shape.width)


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and beside a residual connection."""

    def __init__(self, shape: DecoderShape, length: int) -> None:
        super().__init__()
        self.attention_norm = _norm(shape)
        self.attention = Attention(shape, length)
        self.feed_forward_norm = _norm(shape)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Any) -> Any:
        """Map activations to activations, both (sequences, length, width)."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Head(nn.Module):
    """Norm, then the scores of every word: (sequences, length, vocabulary)."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.norm = _norm(shape)
        self.words = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x: Any) -> Any:
        """Score words."""
        return self.words(self.norm(x))


def build_layer(shape: DecoderShape, length: int, layer: int, dtype: Any, device: Any) -> nn.Module:
    """Build layer 0 (embedding), 1 to ``shape.layers`` (blocks) or the one after them (head)."""
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(_SEED + layer)
        if layer == 0:
            module: nn.Module = Embedding(shape, length)
        elif layer == 1 + shape.layers:
            module = Head(shape)
        else:
            module = Block(shape, length)
    return module.to(dtype)


def tokens_and_targets(
    shape: DecoderShape, sequences: int, length: int, microbatch: int, device: Any
) -> tuple[Any, Any]:
    """Random tokens of one microbatch and the words that follow, (sequences, length) each."""
    generator = torch.Generator().manual_seed(_SEED - 1 - microbatch)
    words = torch.randint(shape.vocabulary, (sequences, length + 1), generator=generator)
    return words[:, :-1].contiguous().to(device), words[:, 1:].contiguous().to(device)


def cross_entropy(scores: Any, targets: Any) -> Any:
    """Mean cross-entropy of one microbatch, computed in float32 at least."""
    exact = scores.flatten(0, 1).to(torch.promote_types(scores.dtype, torch.float32))
    return functional.cross_entropy(exact, targets.flatten())
