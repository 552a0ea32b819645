"""Runs one kernel as soon as it can, and says when it was done."""

from __future__ import annotations

import time

import talk

start = time.monotonic()
import torch  # noqa: E402

imported = time.monotonic() - start
device = talk.device()
value = (torch.ones(64, device=device) * 2).sum().item()
talk.say({"import_seconds": imported, "first": time.monotonic(), "value": value})
