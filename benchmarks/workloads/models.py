"""The workloads by name: ``decoder-base-bf16``, ``demo-encoder``, ``gpt2``, ``loop``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.train import Training
from benchmarks.workloads.gpt2 import make_generator

DEMOS = Path(__file__).resolve().parents[2] / "demos"
BATCHES = {"tiny": 10, "base": 10, "large": 2}  # steps between two looks at the losses
ENDLESS = 1 << 60
LOOPS = 1000  # calls in one step
IMAGES, SMALL_IMAGES = (32, 3, 224, 224), (2, 3, 64, 64)


#: Takes so many steps, waits for the device, and says the seconds of each, if it timed them.
Run = Callable[[int], list[float]]


@dataclass(frozen=True)
class Workload:
    run: Run
    batch: int  # steps between two waits


def make(name: str, device: torch.device, small: bool) -> Workload:
    """``small``: of a size, and in batches, that a CPU can do."""
    kind, *details = name.split("-")
    if kind == "demo":
        return Workload(demo(details[0], device), 1 if small else 10)
    if kind == "resnet50":
        return Workload(resnet50(device, SMALL_IMAGES if small else IMAGES), 1 if small else 5)
    if kind == "gpt2":
        generator = make_generator(device, small)
        return Workload(generator.generate, generator.length)
    if kind == "loop":
        return Workload(loop, 1)
    size, precision = details
    return Workload(transformer(kind, size, precision, device), 1 if small else BATCHES[size])


def transformer(kind: str, size: str, precision: str, device: torch.device) -> Run:
    settings = {"amp": precision == "bf16", "dropout": 0.1, "seed": 0, "device": str(device)}
    training = Training(Namespace(kind=kind, size=size, **settings))
    return looking_at_losses(training.step)


def looking_at_losses(step: Callable[[], Tensor]) -> Run:
    def run(steps: int) -> list[float]:
        torch.stack([step() for _ in range(steps)]).tolist()
        return []

    return run


def demo(kind: str, device: torch.device) -> Run:
    """The demo's own loop, which looks at every loss."""
    if str(DEMOS) not in sys.path:
        sys.path.insert(0, str(DEMOS))
    module, train = import_module(kind), import_module("training").train
    models = {"encoder": "Encoder", "decoder": "Decoder", "encdec": "EncoderDecoder"}
    losses = train(getattr(module, models[kind]), module.make_batch, device, ENDLESS)

    def run(steps: int) -> list[float]:
        for _ in range(steps):
            next(losses)
        return []

    return run


def loop(steps: int) -> list[float]:
    """Calls of PyTorch that need a processor and no other device."""
    x = torch.zeros(8)
    for _ in range(steps * LOOPS):
        x.add_(1)
    return []


def resnet50(device: torch.device, shape: tuple[int, ...]) -> Run:
    """Training with channels last and automatic mixed precision."""
    from torchvision.models import resnet50 as make_model

    torch.manual_seed(0)
    model: nn.Module = make_model().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(shape).to(device, memory_format=torch.channels_last)
    labels = torch.randint(1000, shape[:1]).to(device)

    def step() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            loss = cross_entropy(model(images).float(), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return looking_at_losses(step)
