"""``python -m benchmarks.protocol``: what a call costs, without any device.

Builds small programs with g++, starts a server of the null device (which executes nothing) and
measures codec, stub, ring, the way there and back, and what an idle server uses, in turns.
``--compare`` finds what became slower since an earlier run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

try:
    import psutil
except ModuleNotFoundError:
    sys.exit("benchmarks.protocol: psutil is not installed; pip install '.[benchmarks]'")

from benchmarks.checks.programs import Program, ProgramFailed, environment
from benchmarks.checks.server import Server, ServerFailed
from benchmarks.launcher import Launcher
from benchmarks.outputs import file_fault
from benchmarks.report import number
from benchmarks.rows import quotient
from benchmarks.turns import in_turns
from benchmarks.usage import watched
from mnemosyne.api import SPEC
from mnemosyne.cubin import Registry, find_spans, find_torch_library
from mnemosyne.protocol.frames import decode, encode

KERNEL = "vectorized_elementwise_kernel"
CLIENTS = 4
AHEAD = 0.05  # seconds between a request and the beginning of a count
IDLE_SECONDS = 2.0
FRAMES = 20_000  # that Python writes or reads in a window
Measure = Callable[[], float]
Windows = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Figure:
    """``scale``: from seconds, or calls per second, to the unit."""

    title: str
    unit: str
    scale: float
    target: str


FIGURES = {
    "encode": Figure("codec: write a launch", "ns", 1e9, ""),
    "decode": Figure("codec: read a launch", "ns", 1e9, ""),
    "python_encode": Figure("codec: write it, Python", "ns", 1e9, ""),
    "python_decode": Figure("codec: read it, Python", "ns", 1e9, ""),
    "local": Figure("stub: answered in the client", "ns", 1e9, "20 ns"),
    "launch": Figure("stub: launch", "ns", 1e9, "300 ns"),
    "copy": Figure("stub: copy of 4 KiB", "ns", 1e9, ""),
    "lane": Figure("lane: there and back", "us", 1e6, "15 us"),
    "loop": Figure("event loop: there and back", "us", 1e6, "100 us"),
    "one": Figure("ring: launches, one client", "/s", 1.0, "1,500,000 /s"),
    "four": Figure("ring: launches, four clients", "/s", 1.0, "2,000,000 /s"),
    "idle": Figure("an idle server", "% CPU", 1.0, "0 %"),
}


def main(
    seconds: Annotated[float, typer.Option(min=0.01, help="How long launches are counted.")] = 3.0,
    windows: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    json_file: Annotated[str, typer.Option("--json", help="Write the figures here.")] = "",
    compare: Annotated[str, typer.Option(help="A file of an earlier run.")] = "",
    tolerance: Annotated[float, typer.Option(min=0, help="Share by which one may be worse.")] = 0.2,
) -> None:
    """Measure the protocol on the null device; with --compare, end with 1 if anything is worse."""
    earlier = read(Path(compare)) if compare else {}
    if json_file and (fault := file_fault(Path(json_file))):
        fail(f"cannot write {json_file}: {fault}; --json chooses another file", 2)
    try:
        found = measure_all(windows, seconds / windows)
    except (ProgramFailed, ServerFailed, OSError, subprocess.CalledProcessError) as failure:
        fail(str(failure), 1)
    Console().print(table(found, earlier))
    if json_file:
        Path(json_file).write_text(json.dumps({"windows": found}, indent=1) + "\n")
    if slower := worse(found, earlier, tolerance):
        fail(f"worse by more than {tolerance:.0%}: {'; '.join(slower)}", 1)


def read(file: Path) -> Windows:
    """The windows of an earlier run's figures."""
    try:
        found = json.loads(file.read_text())["windows"]
        return {name: [float(one) for one in found[name]] for name in FIGURES if name in found}
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{file} holds no figures of an earlier run ({error})", 2)


def measure_all(windows: int, seconds: float) -> dict[str, list[float]]:
    """Windows of every figure, in its unit; all figures take turns."""
    with tempfile.TemporaryDirectory(prefix="mnemosyne-benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        launcher = Launcher("null", folder)
        server = stack.enter_context(launcher.server("--clients", str(CLIENTS)))
        measures = {
            **codec_measures(stack.enter_context(codec(folder))),
            **client_measures([stack.enter_context(p) for p in clients(folder, server)], seconds),
        }
        found = in_turns(windows, measures)
        found["idle"] = [idle_cpu(server.processes())]
    return {key: [one * FIGURES[key].scale for one in found[key]] for key in FIGURES}


def codec_measures(program: Program) -> dict[str, Measure]:
    message = next(one for one in SPEC.messages.values() if one.name == "launch")
    values = [1000, *(128 >> at for at in range(6)), 0, 0, bytes(48)]
    frame = encode(message, *values)
    return {
        "encode": lambda: ask(program, "encode"),
        "decode": lambda: ask(program, "decode"),
        "python_encode": lambda: (
            timeit.timeit(lambda: encode(message, *values), number=FRAMES) / FRAMES
        ),
        "python_decode": lambda: timeit.timeit(lambda: decode(frame), number=FRAMES) / FRAMES,
    }


def client_measures(programs: Sequence[Program], seconds: float) -> dict[str, Measure]:
    def alone(name: str) -> Measure:
        return lambda: ask(programs[0], name)

    def counting(count: int) -> Measure:
        return lambda: sum(rates(programs[:count], seconds))

    return {
        **{name: alone(name) for name in ("local", "launch", "copy", "lane", "loop")},
        "one": counting(1),
        "four": counting(CLIENTS),
    }


def ask(program: Program, request: str) -> float:
    return float(program.ask(request, "value")["value"])


def rates(programs: Sequence[Program], seconds: float) -> list[float]:
    """Launches per second of each, counted at the same time."""
    start = time.monotonic() + AHEAD
    for program in programs:
        program.request(f"rate {start} {seconds}")
    return [float(program.answer("value")["value"]) for program in programs]


def codec(folder: Path) -> Program:
    return Program("codec", [str(build(folder, "codec"))], environment(), folder / "codec.log")


def clients(folder: Path, server: Server) -> Iterator[Program]:
    command = [str(build(folder, "client")), *(str(part) for part in small_kernel())]
    for at in range(CLIENTS):
        name = f"client-{at}"
        yield Program(name, command, environment(**server.environment()), folder / f"{name}.log")


def build(folder: Path, name: str) -> Path:
    source = Path(__file__).with_name(f"{name}.cpp")
    program = folder / name
    subprocess.run(["g++", "-O2", "-std=c++17", str(source), "-o", program, "-ldl"], check=True)
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


def idle_cpu(processes: Sequence[psutil.Process]) -> float:
    """Per cent of one CPU that the server's processes use while nobody calls."""
    time.sleep(1)  # until its threads have gone to sleep
    share, _ = watched(processes, lambda: time.sleep(IDLE_SECONDS))
    return share


def table(found: Windows, earlier: Windows) -> Table:
    shown = Table(title=f"Protocol, null device, {os.cpu_count()} CPUs")
    for at, column in enumerate(("figure", "here", "target", "earlier", "ratio")):
        shown.add_column(column, justify="right" if at else "left")
    for name, figure in FIGURES.items():
        compared = [text(name, earlier), f"{ratio(name, found, earlier):.2f}"]
        shown.add_row(
            figure.title, text(name, found), figure.target, *(compared if name in earlier else [])
        )
    return shown


def text(name: str, windows: Windows) -> str:
    if name not in windows:
        return ""
    return f"{number(statistics.median(windows[name]))} {FIGURES[name].unit}"


def ratio(name: str, found: Windows, earlier: Windows) -> float:
    """Of the medians; below 1 the figure is worse than it was."""
    if name not in earlier:
        return 1.0
    now, before = (statistics.median(windows[name]) for windows in (found, earlier))
    return quotient(now, before, FIGURES[name].unit)


def worse(found: Windows, earlier: Windows, tolerance: float) -> list[str]:
    """What is worse by more than the tolerance, with how it is and was."""
    return [
        f"{FIGURES[name].title}: {text(name, found)}, earlier {text(name, earlier)}"
        for name in FIGURES
        if ratio(name, found, earlier) < 1 / (1 + tolerance)
    ]


def fail(line: str, code: int) -> NoReturn:
    print(f"benchmarks.protocol: {line}", file=sys.stderr)
    raise typer.Exit(code)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m benchmarks.protocol")
