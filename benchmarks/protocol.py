"""``python -m benchmarks.protocol``: what a call costs, without any device.

Builds a small client with g++, starts a server of the null device (which executes nothing) and
measures the stub, the ring, the way there and back, and what an idle server uses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from mnemosyne.cli import client_library
from mnemosyne.cubin import Registry, find_spans, find_torch_library

KERNEL = "vectorized_elementwise_kernel"
START_SECONDS = 5.0  # enough for the figures that come before the counting
SOURCE = Path(__file__).with_name("client.cpp")


def main(
    seconds: Annotated[float, typer.Option(help="How long launches are counted.")] = 3.0,
    json_file: Annotated[str, typer.Option("--json", help="Write the figures here.")] = "",
) -> None:
    """Measure the protocol on the null device."""
    with tempfile.TemporaryDirectory(prefix="mnemosyne-benchmark-") as name:
        folder = Path(name)
        program = build(folder)
        target = [str(part) for part in small_kernel()]
        with server(folder / "mnemosyne.sock") as process:
            environment = {**os.environ, "MNEMOSYNE_SOCKET": str(folder / "mnemosyne.sock")}
            environment["LD_PRELOAD"] = str(client_library())
            command = [str(program), *target, str(seconds)]
            one = clients(command, environment, 1)
            four = clients(command, environment, 4)
            idle = idle_cpu(process)
    figures = {**one[0], "four": four, "idle_cpu_percent": idle}
    show(figures)
    if json_file:
        Path(json_file).write_text(json.dumps(figures, indent=1) + "\n")


def build(folder: Path) -> Path:
    program = folder / "client"
    subprocess.run(["g++", "-O2", "-std=c++17", str(SOURCE), "-o", program, "-ldl"], check=True)
    return program


def small_kernel() -> tuple[Path, int, str]:
    """Library, offset of a fatbin and a kernel in it that PyTorch launches often."""
    library = find_torch_library()
    registry = Registry("sm_90")
    for span in find_spans(library):
        module = registry.module_from_file(str(library), span.offset, span.size)
        names = [name for name in module.kernels if KERNEL in name]
        if names and len(module.kernels[names[0]].params) == 3:
            return library, span.offset, names[0]
    raise SystemExit(f"{library} has no {KERNEL}")


@contextmanager
def server(socket: Path) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "mnemosyne.server", "--device", "null"]
    process = subprocess.Popen(
        [*command, "--clients", "4", "--socket", str(socket), "--log-level", "error"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "ready" not in (line := process.stderr.readline()):
        if not line:
            raise SystemExit("the server did not start")
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def clients(command: list[str], environment: dict[str, str], count: int) -> list[dict[str, Any]]:
    """The figures of so many clients at once; they count launches at the same time."""
    command = [*command, str(time.monotonic() + START_SECONDS)]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(count)
    ]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("a client failed")
    return [json.loads(output) for output in outputs]


def idle_cpu(supervisor: psutil.Process, seconds: float = 2.0) -> float:
    """Per cent of one CPU that the server's processes use while nobody calls."""
    processes = [supervisor, *supervisor.children(recursive=True)]
    time.sleep(1)  # until the last clients' sessions have ended
    before = sum(sum(p.cpu_times()[:2]) for p in processes)
    time.sleep(seconds)
    return 100 * (sum(sum(p.cpu_times()[:2]) for p in processes) - before) / seconds


def show(figures: dict[str, Any]) -> None:
    together = sum(client["launches_per_s"] for client in figures["four"])
    table = Table("figure", "here", "target", title=f"Protocol, null device, {os.cpu_count()} CPUs")
    rows = [
        ("call answered in the client", f"{figures['local_ns']:.1f} ns", "20 ns"),
        ("launch, in the stub", f"{figures['launch_ns']:.0f} ns", "300 ns"),
        ("there and back, answered by the lane", f"{figures['lane_us']:.1f} us", "15 us"),
        ("there and back, answered by the event loop", f"{figures['loop_us']:.1f} us", "100 us"),
        ("launches, one client", f"{figures['launches_per_s']:,.0f} /s", "1,500,000 /s"),
        ("launches, four clients in sum", f"{together:,.0f} /s", "2,000,000 /s"),
        ("an idle server", f"{figures['idle_cpu_percent']:.1f} % CPU", "0 %"),
    ]
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
