"""Train a Transformer encoder and decoder together: continue a sequence of tokens.

    python demos/encdec.py --help

An ordinary PyTorch program. It knows nothing of Mnemosyne and must never import it.
"""

from __future__ import annotations

import sys

from cli import main
from torch import Tensor, nn
from training import Batch, counting_tokens
from transformer import SEQUENCE, WIDTH, Embedding, Head, Layer


class EncoderDecoder(nn.Module):
    """The encoder reads the source; the decoder writes the target, looking at both."""

    def __init__(self, encoder_layers: int = 8, decoder_layers: int = 8) -> None:
        super().__init__()
        self.source_embedding = Embedding()
        self.encoder = nn.ModuleList(Layer(causal=False) for _ in range(encoder_layers))
        self.memory_norm = nn.LayerNorm(WIDTH)
        self.target_embedding = Embedding()
        self.decoder = nn.ModuleList(
            Layer(causal=True, crossed=True) for _ in range(decoder_layers)
        )
        self.head = Head()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token numbers (B, L) twice -> scores (B, L, vocabulary) of the target's next tokens."""
        memory = self.source_embedding(source)
        for layer in self.encoder:
            memory = layer(memory)
        memory = self.memory_norm(memory)
        x = self.target_embedding(target)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(x)


def make_batch() -> Batch:
    """Sequences that count up: the encoder reads the first half, the decoder writes the second."""
    tokens = counting_tokens(2 * SEQUENCE)
    source, target = tokens[:, :SEQUENCE], tokens[:, SEQUENCE:]
    before_target = tokens[:, SEQUENCE - 1 : -1]
    return Batch(inputs=(source, before_target), targets=target)


if __name__ == "__main__":
    sys.exit(main("encdec", EncoderDecoder, make_batch))
