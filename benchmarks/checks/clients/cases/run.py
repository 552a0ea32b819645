"""Runs the cases of a module on request: ``names``, or ``run NAME``; each answer is a line of JSON.

A case is run a few times and its results are told by their SHA-256 and a fingerprint; one that
raises tells its error, and others can follow.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import itertools
import json
import math
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from case import CASES, Setting, Skip, Step, Tensors
from torch import Tensor

STEPS = 3  # of a case that has any
TIMED_STEPS = 15  # at most
TIMED_SECONDS = 0.5

Answer = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    Setting.device, Setting.tiny = arguments.device, arguments.tiny
    sys.path.insert(0, str(arguments.module.parent))
    importlib.import_module(arguments.module.stem)
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        answer = {"names": list(CASES)} if word == "names" else answer_of(name)
        print(json.dumps(answer), flush=True)


def answer_of(name: str) -> Answer:
    try:
        return {"case": name, **run(name)}
    except Skip as skip:
        return {"case": name, "skip": str(skip)}
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return {"case": name, "error": text, "broken": broken()}


def run(name: str) -> Answer:
    """Results of the first steps, and seconds of one when it is warm."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    made = CASES[name]()
    if not callable(made):
        return {"results": told(made)}
    results = [told(made()) for _ in range(STEPS)]
    return {"results": list(itertools.chain(*results)), "seconds": seconds(made)}


def told(tensors: Tensors) -> list[dict[str, str | float]]:
    return [
        {"sha": sha(x), "fingerprint": fingerprint(x).hex(), "eps": eps(x.dtype)}
        for x in map(on_host, tensors)
    ]


def on_host(x: Tensor) -> Tensor:
    x = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return torch.view_as_real(x) if x.is_complex() else x


def sha(x: Tensor) -> str:
    digest = hashlib.sha256(f"{tuple(x.shape)} {x.dtype} ".encode())
    digest.update(x.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint(x: Tensor) -> float:
    """A number that is near for near tensors: two norms and the product with a fixed direction."""
    x = x.to(torch.float64).flatten()
    direction = torch.cos(torch.arange(len(x), dtype=torch.float64))
    size = max(1.0, float(direction.norm()))
    return 2 * float(x.norm()) + float(x @ direction) / size if len(x) else 0.0


def eps(dtype: torch.dtype) -> float:
    """How far apart two sums of the same numbers may be that are each rounded once, relatively."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def seconds(step: Step) -> float:
    """Median of some steps, each waited for."""
    times: list[float] = []
    enough = TIMED_SECONDS if not Setting.tiny else 0.0
    while not times or (len(times) < TIMED_STEPS and math.fsum(times) < enough):
        start = time.perf_counter()
        step()
        synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def broken() -> bool:
    """Whether this process is of no use any more after an error; also gives back its memory."""
    gc.collect()
    try:
        torch.rand(1, device=Setting.device)
        synchronize()
    except Exception:
        return True
    return False


def synchronize() -> None:
    if Setting.device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":  # a case may start processes that import this file
    main()
