"""The command line of ``scripts/gpu-check``."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from benchmarks.checks.cache import NativeCache, default_folder
from benchmarks.checks.context import Context
from benchmarks.checks.items import ITEMS, choose
from benchmarks.checks.machine import Machine, this_machine
from benchmarks.checks.report import as_json, item_line, table
from benchmarks.checks.results import ItemResult, Verdict
from benchmarks.checks.runner import Item, run_item
from benchmarks.checks.scale import SCALES
from benchmarks.outputs import file_fault, folder_fault


class Device(Enum):
    cuda = "cuda"
    cpu = "cpu"


def main(
    only: Annotated[str, typer.Option(help="Items by number or name, such as 1,3,speed.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="List the items and end.")] = False,
    device: Annotated[Device, typer.Option(help="The server's device.")] = Device.cuda,
    full: Annotated[bool, typer.Option("--full", help="More rounds and sizes; slow.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny: tries the checks out.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run native programs again.")] = False,
    limit: Annotated[
        float, typer.Option(min=0, help="Seconds per item.", show_default="its own")
    ] = 0,
    log_dir: Annotated[
        Path | None, typer.Option(help="Where logs go.", show_default="in /tmp")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write results here.")] = None,
) -> None:
    """Show on a machine with an NVIDIA GPU that the CUDA device holds, beside native PyTorch."""
    if list_:
        typer.echo("\n".join(f"{item.number} {item.name:<10} {item.what}" for item in ITEMS))
        return
    items = chosen_items(only)
    if quick and full:
        fail("--quick and --full exclude each other")
    check_outputs(log_dir, json_file)
    scale = "quick" if quick else "full" if full else "normal"
    machine = this_machine()
    if device is Device.cuda and machine.gpu is None:
        fail("no GPU answers here; --device cpu tries the checks on the CPU device")
    context = make_context(device.value, scale, machine, fresh, log_dir)
    settings = {"device": device.value, "scale": scale, "machine": machine.fields()}
    results: list[ItemResult] = []
    for result in run_items(items, context, limit):
        results.append(result)
        if json_file:
            json_file.write_text(as_json(results, settings))
    print(f"\n{table(results)}\nlogs: {context.logs}", flush=True)
    raise typer.Exit(any(result.verdict is Verdict.FAIL for result in results))


def chosen_items(only: str) -> list[Item]:
    try:
        return choose(only)
    except ValueError as error:
        fail(str(error))


def check_outputs(log_dir: Path | None, json_file: Path | None) -> None:
    if log_dir and (fault := folder_fault(log_dir)):
        fail(f"cannot write into {log_dir}: {fault}; --log-dir chooses another folder")
    if json_file and (fault := file_fault(json_file)):
        fail(f"cannot write {json_file}: {fault}; --json chooses another file")


def make_context(
    device: str, scale: str, machine: Machine, fresh: bool, log_dir: Path | None
) -> Context:
    logs = log_dir or Path(tempfile.mkdtemp(prefix="gpu-check-logs-"))
    words = machine.words(device)
    print(f"{words}; {device} device; {scale}", flush=True)
    cache = NativeCache(default_folder(), words, fresh)
    return Context(device, SCALES[scale], machine, cache, logs.resolve())


def run_items(items: list[Item], context: Context, limit: float) -> Iterator[ItemResult]:
    """Says a line for each as soon as it is done; SIGTERM ends the one that runs in order."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for item in items:
        result = run_item(item, context, limit or item.seconds)
        print(item_line(result), flush=True)
        yield result


def fail(text: str) -> NoReturn:
    print(f"gpu-check: {text}", file=sys.stderr)
    raise typer.Exit(2)
