"""Train a Transformer encoder: name the successor of every token of a sequence.

    python demos/encoder.py --help

An ordinary PyTorch program. It knows nothing of Mnemosyne and must never import it.
"""

from __future__ import annotations

import sys

from cli import main
from torch import Tensor, nn
from training import Batch, random_tokens, successors
from transformer import SEQUENCE, Embedding, Head, Layer


class Encoder(nn.Module):
    """Every position sees the whole sequence."""

    def __init__(self, layers: int = 16) -> None:
        super().__init__()
        self.embedding = Embedding()
        self.layers = nn.ModuleList(Layer(causal=False) for _ in range(layers))
        self.head = Head()

    def forward(self, tokens: Tensor) -> Tensor:
        """Token numbers (B, L) -> scores (B, L, vocabulary)."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def make_batch() -> Batch:
    """Random sequences; the label of a token is the one that follows it in the vocabulary."""
    tokens = random_tokens(SEQUENCE)
    return Batch(inputs=(tokens,), targets=successors(tokens))


if __name__ == "__main__":
    sys.exit(main("encoder", Encoder, make_batch))
