"""Train a Transformer decoder: foretell the next token from the ones before it.

    python demos/decoder.py --help

An ordinary PyTorch program. It knows nothing of Mnemosyne and must never import it.
"""

from __future__ import annotations

import sys

from cli import main
from torch import Tensor, nn
from training import Batch, counting_tokens
from transformer import SEQUENCE, Embedding, Head, Layer


class Decoder(nn.Module):
    """Every position sees itself and the positions before it."""

    def __init__(self, layers: int = 16) -> None:
        super().__init__()
        self.embedding = Embedding()
        self.layers = nn.ModuleList(Layer(causal=True) for _ in range(layers))
        self.head = Head()

    def forward(self, tokens: Tensor) -> Tensor:
        """Token numbers (B, L) -> scores (B, L, vocabulary) of the token that follows each."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def make_batch() -> Batch:
    """Sequences that count up from a random token, and the same moved on by one."""
    tokens = counting_tokens(SEQUENCE + 1)
    return Batch(inputs=(tokens[:, :-1],), targets=tokens[:, 1:])


if __name__ == "__main__":
    sys.exit(main("decoder", Decoder, make_batch))
