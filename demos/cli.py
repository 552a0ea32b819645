"""Options, progress and exit status of the three demos.

A demo hands its model and batches to ``main``; ``training`` does the work. This file must never
know which of the demos it serves.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import interrupt  # noqa: F401  before torch: Ctrl-C is quiet from here on
import torch
from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn
from terminal import Parser, Report, bar_columns, positive
from torch import nn
from training import Batch, train


def main(name: str, make_model: Callable[[], nn.Module], make_batch: Callable[[], Batch]) -> int:
    """Run the demo as the command line asks; returns the exit status."""
    options = parse_options(name)
    try:
        result = run(name, train(make_model, make_batch, options.device, options.steps), options)
    except RuntimeError as error:
        if "CUDA" not in str(error):
            raise
        print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if not options.progress_json:
        print(summary(result))
    return 0


def run(name: str, steps: Iterator[float], options: argparse.Namespace) -> dict[str, Any]:
    """Take all the steps, reporting each one; returns what ``--json`` writes."""
    losses, times = [], [perf_counter()]
    with reporter(name, options) as report:
        for loss in steps:
            losses.append(loss)
            times.append(perf_counter())
            report(len(losses), loss)
    return {
        "name": name,
        "device": options.device.type,
        "device_name": device_name(options.device),
        "torch": torch.__version__,
        "steps_per_second": rate(times),
        "losses": losses,
    }


@contextmanager
def reporter(name: str, options: argparse.Namespace) -> Iterator[Report]:
    """Lines of JSON on stdout if asked for; else a progress bar, if stderr is a terminal."""
    if options.progress_json:
        yield lambda step, loss: print(json.dumps({"step": step, "loss": loss}), flush=True)
        return
    columns = (*bar_columns(), TimeRemainingColumn())
    quiet = not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task(name, total=options.steps, loss="-")
        yield lambda step, loss: progress.update(task, completed=step, loss=f"{loss:.4f}")


def rate(times: list[float]) -> float:
    """Steps per second; the first step, in which kernels are loaded, is left out if possible."""
    first = 1 if len(times) > 2 else 0
    return (len(times) - 1 - first) / (times[-1] - times[first])


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def summary(result: dict[str, Any]) -> str:
    losses = result["losses"]
    return (
        f"{result['name']}: {len(losses)} steps on {result['device']} ({result['device_name']}), "
        f"{result['steps_per_second']:.1f} steps/s, loss {losses[0]:.4f} -> {losses[-1]:.4f}"
    )


def parse_options(name: str) -> argparse.Namespace:
    parser = Parser(prog=name, description="Train a small Transformer on made-up sequences.")
    option = parser.add_argument
    option("--steps", type=positive, default=100, metavar="N", help="training steps (default: 100)")
    option("--device", type=device, metavar="DEVICE", help="cpu, cuda or cuda:N (default: cuda if"
           " there is one, else cpu)")  # fmt: skip
    option("--json", type=new_file, metavar="FILE", help="write losses and steps/s to FILE; the"
           " first step, which loads kernels, does not count for steps/s")  # fmt: skip
    option("--progress-json", action="store_true", help="print a line of JSON after every step"
           " instead of a progress bar")  # fmt: skip
    options = parser.parse_args()
    if options.device is None:
        options.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return options


def new_file(text: str) -> Path:
    path = Path(text)
    existed = path.exists()
    try:
        with path.open("a"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write '{text}': {error.strerror}") from None
    return path


def device(text: str) -> torch.device:
    """The device of this name; complains about one that is not there."""
    try:
        found = torch.device(text)
    except RuntimeError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a device") from None
    if found.type not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither cpu nor cuda")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise argparse.ArgumentTypeError(f"there is no CUDA device '{text}' here")
    return found
