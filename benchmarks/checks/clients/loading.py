"""Times batches that four workers load, a thread pins, and a small network is trained on."""

from __future__ import annotations

import time
from functools import cache

import talk
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, IMAGES = 64, 512
device = talk.device()
synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None


@cache
def loader(count: int) -> DataLoader:
    """``count`` batches; its workers stay."""
    images = torch.randn(IMAGES, 3, 64, 64)
    data = TensorDataset(images.repeat(count * BATCH // IMAGES + 1, 1, 1, 1)[: count * BATCH])
    pin = device == "cuda"
    return DataLoader(data, BATCH, num_workers=4, pin_memory=pin, persistent_workers=True)


layers = nn.Conv2d(3, 16, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16 * 16, 10)
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def batches(count: int) -> talk.Answer:
    """Seconds of one batch."""
    start = time.perf_counter()
    for (images,) in loader(count):
        optimizer.zero_grad()
        model(images.to(device, non_blocking=True)).square().mean().backward()
        optimizer.step()
    synchronize()
    return {"seconds": (time.perf_counter() - start) / count}


if __name__ == "__main__":
    talk.serve({"batches": batches})
