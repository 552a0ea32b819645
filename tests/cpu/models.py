"""Programs that train, of the kinds that tutorials teach, on made-up data; without dropout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, StepLR

STEPS = 40
EPOCH = 10  # steps between those of a scheduler


class Encoder(nn.Module):
    """Tags every token of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(64, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens))).flatten(0, 1)


class Bag(nn.Module):
    """Classifies the mean of embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(self.embedding(tokens).mean(1))


class Digits(nn.Module):
    """The basic convolutional network for images of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.0), nn.Dropout(0.0)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        return self.fc2(self.dropout2(F.relu(self.fc1(x))))


def _small_cnn() -> nn.Module:
    """Convolutions with batch norm, and global pooling, for small colour images."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, groups=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AvgPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10),
    )  # fmt: skip


class Names(nn.Module):
    """A recurrent classifier of names, letter by letter, made of linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.to_hidden, self.hidden = nn.Linear(57, 128), nn.Linear(128, 128)
        self.out = nn.Linear(128, 18)

    def forward(self, letters: Tensor) -> Tensor:
        hidden = torch.zeros(letters.shape[0], 128, device=letters.device)
        for letter in F.one_hot(letters, 57).to(torch.float32).unbind(1):
            hidden = torch.tanh(self.to_hidden(letter) + self.hidden(hidden))
        return self.out(hidden)


def _tokens(count: int, *sizes: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(count, sizes)


def _numbers(*sizes: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(sizes)


@dataclass(frozen=True)
class Program:
    """A model, the data of a step, and how it is trained."""

    model: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    labels: Callable[[], Tensor]
    optimizer: Callable[..., torch.optim.Optimizer]
    rate: float
    options: dict[str, float]
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy

    def schedule(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
        return StepLR(optimizer, step_size=1, gamma=0.7)


def _nll(scores: Tensor, labels: Tensor) -> Tensor:
    return F.nll_loss(F.log_softmax(scores, dim=1), labels)


_OPTIM = torch.optim
PROGRAMS = {
    "encoder": Program(Encoder, _tokens(50, 16, 24), _tokens(50, 384), _OPTIM.AdamW, 1e-3, {}),
    "mlp": Program(
        lambda: nn.Sequential(
            nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)
        ),
        _numbers(128, 256), _tokens(10, 128), _OPTIM.Adam, 1e-3, {},
    ),
    "bag": Program(Bag, _tokens(1000, 64, 30), _tokens(10, 64), _OPTIM.AdamW, 1e-2, {}),
    # The tutorial's rate of 1.0 is chaotic on noise: two runs on CPUs part by 3e-2.
    "digits": Program(
        Digits, _numbers(32, 1, 28, 28), _tokens(10, 32), _OPTIM.Adadelta, 0.3, {}, _nll
    ),
    "cnn": Program(
        _small_cnn, _numbers(32, 3, 16, 16), _tokens(10, 32), _OPTIM.SGD, 0.05, {"momentum": 0.9}
    ),
    "names": Program(Names, _tokens(57, 64, 9), _tokens(18, 64), _OPTIM.SGD, 0.5, {}, _nll),
}  # fmt: skip


def losses(program: Program, device: str, bf16: bool) -> Iterator[float]:
    """The loss of each step; four batches, again and again, so that there is something to learn."""
    torch.manual_seed(0)
    model = program.model().to(device)
    batches = [(program.inputs().to(device), program.labels().to(device)) for _ in range(4)]
    optimizer = program.optimizer(model.parameters(), lr=program.rate, **program.options)
    scheduler = program.schedule(optimizer)
    for step in range(STEPS):
        inputs, labels = batches[step % len(batches)]
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = program.loss(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if step % EPOCH == EPOCH - 1:
            scheduler.step()
        yield loss.item()


def main(device: str, threads: int, precision: str) -> None:
    """Runs all in this process, and prints the losses of their steps as JSON."""
    torch.set_num_threads(threads)
    bf16 = precision == "bf16"
    print(json.dumps({n: list(losses(p, device, bf16)) for n, p in PROGRAMS.items()}))
