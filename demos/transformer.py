"""The parts of a small Transformer, written out in ordinary PyTorch operations.

The three demos build their models from these parts. Shapes are given as batch B, length L,
embedding width D, heads H. This file must never know which device it runs on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

VOCABULARY = 50
SEQUENCE = 10
WIDTH = 64
HEADS = 4
FEED_FORWARD = 256


class Layer(nn.Module):
    """One layer: self-attention, attention to ``memory`` if ``crossed``, and a feed-forward net.

    Every part normalises its input and adds its output to what it was given ("pre-norm").
    """

    def __init__(self, *, causal: bool, crossed: bool = False) -> None:
        super().__init__()
        self.attention = Attention(causal=causal)
        self.attention_norm = nn.LayerNorm(WIDTH)
        if crossed:
            self.cross = Attention(causal=False)
            self.cross_norm = nn.LayerNorm(WIDTH)
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, FEED_FORWARD), nn.ReLU(), nn.Linear(FEED_FORWARD, WIDTH)
        )
        self.feed_forward_norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """(B, L, D) in, (B, L, D) out; ``memory`` is the output of an encoder, (B, L, D)."""
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed)
        if memory is not None:
            x = x + self.cross(self.cross_norm(x), memory)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Attention(nn.Module):
    """Multi-head attention; a ``causal`` one lets no position see a later one."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        future = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)
        self.register_buffer("future", future if causal else None, persistent=False)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """Positions of ``x`` (B, L, D) look at positions of ``memory`` (B, L, D)."""
        query = split_heads(self.query(x))
        key = split_heads(self.key(memory))
        value = split_heads(self.value(memory))
        scores = query @ key.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5  # (B, H, L, L)
        if self.future is not None:
            scores = scores.masked_fill(self.future, float("-inf"))
        return self.output(join_heads(scores.softmax(dim=-1) @ value))


def split_heads(x: Tensor) -> Tensor:
    """(B, L, D) -> (B, H, L, D / H)."""
    return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, L, D / H) -> (B, L, D)."""
    return x.transpose(1, 2).flatten(2)


class Embedding(nn.Module):
    """Tokens and their positions as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(SEQUENCE, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        """Token numbers (B, L) -> vectors (B, L, D)."""
        return self.token(tokens) + self.position


class Head(nn.Module):
    """Vectors as one score (logit) for every word of the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, VOCABULARY)."""
        return self.project(self.norm(x))
