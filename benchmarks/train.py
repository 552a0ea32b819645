"""``python benchmarks/train.py decoder --size base --amp``: train a Transformer and time its steps.

An ordinary PyTorch program. It knows nothing of Mnemosyne and must never import it. Every line it
prints is JSON: one for each step with the exact loss, one for each stretch of steps with its time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STARTED = time.perf_counter()

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

IMPORT_SECONDS = time.perf_counter() - STARTED
VOCABULARY = 8192
LONGEST = 1024
LEARNING_RATE = 1e-4
WINDOW = 10  # steps between two looks at the losses, which wait for the device


@dataclass(frozen=True)
class Size:
    width: int
    heads: int
    feed_forward: int
    layers: int
    length: int  # tokens of a sequence
    batch: int  # sequences


SIZES = {
    "tiny": Size(128, 4, 512, 4, 64, 8),
    "base": Size(512, 8, 2048, 6, 128, 16),
    "large": Size(1024, 16, 4096, 12, 512, 8),
}


def main() -> int:
    options = parse_options()
    training = Training(options)
    if options.on_request:
        for line in sys.stdin:
            obey(training, *line.split())
        return 0
    say(train_steps(training, options.steps))
    return 0


class Training:
    """A model, its optimizer and one random batch, made on the CPU from one seed."""

    def __init__(self, options: argparse.Namespace) -> None:
        size = SIZES[options.size]
        torch.manual_seed(options.seed)
        self.device = torch.device(options.device)
        self.amp = options.amp
        self.model = Model(options.kind, size, options.dropout).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        shape = (size.batch, size.length)
        self.inputs = torch.randint(VOCABULARY, shape).to(self.device)
        self.targets = torch.randint(VOCABULARY, shape).to(self.device)
        self.steps = 0

    def step(self) -> Tensor:
        """One step; its loss, still on the device."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.amp):
            scores = self.model(self.inputs, self.targets)
            loss = cross_entropy(scores.flatten(0, 1).float(), self.targets.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def window(self, steps: int) -> float:
        """Seconds of so many steps; says the loss of each once all are done."""
        start = time.perf_counter()
        losses = torch.stack([self.step() for _ in range(steps)]).tolist()
        seconds = time.perf_counter() - start
        for loss in losses:
            self.steps += 1
            say({"step": self.steps, "loss": loss})
        return seconds


class Model(nn.Module):
    """Token numbers (B, L) -> scores (B, L, vocabulary)."""

    def __init__(self, kind: str, size: Size, dropout: float) -> None:
        super().__init__()
        self.kind = kind
        self.token = nn.Embedding(VOCABULARY, size.width)
        self.position = nn.Embedding(LONGEST, size.width)
        self.body = make_body(kind, size, dropout)
        self.head = nn.Linear(size.width, VOCABULARY)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        places = self.position(torch.arange(inputs.shape[1], device=inputs.device))
        x = self.token(inputs) + places
        if self.kind == "encoder":
            return self.head(self.body(x))
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        if self.kind == "decoder":
            return self.head(self.body(x, mask=mask, is_causal=True))
        y = self.token(targets) + places
        return self.head(self.body(x, y, tgt_mask=mask, tgt_is_causal=True))


def make_body(kind: str, size: Size, dropout: float) -> nn.Module:
    layer: dict[str, Any] = {
        "d_model": size.width, "nhead": size.heads, "dim_feedforward": size.feed_forward,
        "dropout": dropout, "batch_first": True, "norm_first": True,
    }  # fmt: skip
    half = size.layers // 2
    if kind == "encdec":
        return nn.Transformer(num_encoder_layers=half, num_decoder_layers=half, **layer)
    one = nn.TransformerEncoderLayer(**layer)
    return nn.TransformerEncoder(one, size.layers, enable_nested_tensor=False)


def obey(training: Training, word: str, number: str = "0") -> None:
    """``steps N``, ``seconds S`` or ``memory``; answers with one line after those of the steps."""
    requests: dict[str, Callable[[], dict[str, Any]]] = {
        "steps": lambda: train_steps(training, int(number)),
        "seconds": lambda: train_seconds(training, float(number)),
        "memory": memory,
    }
    say(requests[word]())


def train_steps(training: Training, steps: int) -> dict[str, Any]:
    sizes = [min(WINDOW, steps - done) for done in range(0, steps, WINDOW)]
    return summary(sizes, [training.window(size) for size in sizes])


def train_seconds(training: Training, seconds: float) -> dict[str, Any]:
    """At least that long, in whole windows."""
    end, windows = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        windows.append(training.window(WINDOW))
    return summary([WINDOW] * len(windows), windows)


def summary(sizes: list[int], windows: list[float]) -> dict[str, Any]:
    """The times of a stretch; the first window of a program also loads the kernels."""
    return {
        "steps": sum(sizes),
        "seconds": sum(windows),
        "steps_per_second": sum(sizes) / sum(windows) if windows else 0.0,
        "window_seconds": windows,
        "import_seconds": IMPORT_SECONDS,
    }


def memory() -> dict[str, Any]:
    """Bytes that PyTorch's allocator holds on the device."""
    torch.cuda.synchronize()
    return {"reserved": torch.cuda.memory_reserved()}


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a Transformer on one random batch.")
    option = parser.add_argument
    option("kind", choices=("encoder", "decoder", "encdec"))
    option("--size", choices=SIZES, default="tiny", help="default: tiny")
    option("--steps", type=int, default=100, metavar="N", help="default: 100")
    option("--amp", action="store_true", help="bfloat16 where autocast allows it")
    option("--seed", type=int, default=0, metavar="N", help="default: 0")
    option("--dropout", type=float, default=0.1, metavar="P", help="default: 0.1")
    option("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    option("--on-request", action="store_true", help="train as lines on stdin ask: 'steps N',"
           " 'seconds S', 'memory'")  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
