"""The training loop and the random batches of the three demos.

Weights and batches are made on the CPU, from one seed, and then moved to the device: so every
device starts from the same numbers. This file must never print or read options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformer import VOCABULARY

SEED = 42
BATCH = 32
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Batch:
    """What goes into the model, and the token numbers (B, L) it should find."""

    inputs: tuple[Tensor, ...]
    targets: Tensor


def train(
    make_model: Callable[[], nn.Module],
    make_batch: Callable[[], Batch],
    device: torch.device,
    steps: int,
) -> Iterator[float]:
    """Train a fresh model, yielding the loss of every step (it has left the device by then)."""
    torch.manual_seed(SEED)
    model = make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for _ in range(steps):
        batch = make_batch()
        logits = model(*(tokens.to(device) for tokens in batch.inputs))
        targets = batch.targets.to(device)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def counting_tokens(length: int) -> Tensor:
    """Sequences (B, length) that count up from a random token, with the first after the last."""
    return successors(torch.randint(VOCABULARY, (BATCH, 1)), torch.arange(length))


def successors(tokens: Tensor, distance: Tensor | int = 1) -> Tensor:
    """The tokens ``distance`` further on in the vocabulary."""
    return (tokens + distance) % VOCABULARY


def random_tokens(length: int) -> Tensor:
    """Sequences (B, length) of random tokens."""
    return torch.randint(VOCABULARY, (BATCH, length))
