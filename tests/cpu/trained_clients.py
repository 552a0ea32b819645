"""Small training programs, for tests that kill and stop them.

Losses are printed exactly, as hexadecimal. A record is RECORD bytes long, so that a reader who asks
for a small pipe knows how far the program can be ahead of him.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable

import torch
from torch import nn

RECORD = 512
LAYERS = 16
#: Records of a step: its number, each layer forward and backward, the optimizer, the loss.
MARKS = 2 * LAYERS + 3


def silent(text: str) -> None:
    pass


def record(text: str) -> None:
    os.write(1, text.ljust(RECORD - 1).encode() + b"\n")


class Training:
    """A stack of layers with dropout, learning noise."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(LAYERS)).cuda()
        self.optimizer = torch.optim.Adam(self.layers.parameters(), lr=1e-3)

    def step(self, mark: Callable[[str], None] = silent) -> str:
        x = torch.randn(16, 32, device="cuda")
        for number, layer in enumerate(self.layers):
            x = nn.functional.dropout(torch.tanh(layer(x)), 0.1) + x
            x.register_hook(lambda grad, number=number: mark(f"backward {number}"))
            mark(f"forward {number}")
        loss = x.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        mark("optimizer")
        return loss.item().hex()

    def hash(self) -> str:
        """Of all that the training keeps on the device."""
        state = [*self.layers.parameters(), *self.layers.buffers()]
        for moments in self.optimizer.state.values():
            state += moments.values()
        return hashlib.sha256(
            b"".join(t.detach().cpu().numpy().tobytes() for t in state)
        ).hexdigest()


def losses(steps: int, *seeds: int) -> None:
    """Trains once for each seed."""
    for seed in seeds:
        training = Training(seed)
        print(*[training.step() for _ in range(steps)])


def until_told(seed: int) -> None:
    """Trains until SIGUSR1 comes."""
    told: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
    training, seen = Training(seed), []
    while not told:
        seen.append(training.step())
        if len(seen) == 1:
            print("training", flush=True)
    print(*seen)


def marks(steps: int, seed: int) -> None:
    """Prints a record at each part of each step."""
    training = Training(seed)
    for number in range(steps):
        record(f"step {number}")
        record(f"loss {training.step(record)}")


def paced(seed: int) -> None:
    """A step for each line "step"; "sum" asks for the state's hash."""
    training = Training(seed)
    answers: dict[str, Callable[[], str]] = {"step": training.step, "sum": training.hash}
    while line := sys.stdin.readline():
        print(answers[line.strip()](), flush=True)


def busy() -> None:
    """Posts work when told to, and then waits for it."""
    x = torch.zeros(4, device="cuda").add_(1)  # the kernel is known from now on
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(10):
        x.add_(1)
    print("posted", flush=True)
    torch.cuda.synchronize()


PROGRAMS: dict[str, Callable[..., None]] = {
    "losses": losses, "until-told": until_told, "marks": marks, "paced": paced, "busy": busy,
}  # fmt: skip
