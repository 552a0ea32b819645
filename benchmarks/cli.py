"""The command line of ``python -m benchmarks``."""

from __future__ import annotations

import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from benchmarks.apart import TimeLimit, run_apart
from benchmarks.bench import Bench, fault_of_mps
from benchmarks.checks.machine import this_machine
from benchmarks.checks.programs import ProgramFailed
from benchmarks.checks.server import ServerFailed
from benchmarks.launcher import Launcher
from benchmarks.outputs import folder_fault
from benchmarks.parts.items import PARTS, Part, choose
from benchmarks.picture import draw
from benchmarks.report import PartResult, as_json, row_line, summary, table
from benchmarks.rows import Row, failed
from benchmarks.scale import NORMAL, QUICK
from mnemosyne import __version__
from mnemosyne.interrupt import INTERRUPTED

LIMIT = 480.0  # seconds of a part
WIDTH = 132  # of a table that goes to no terminal


class Device(Enum):
    cuda = "cuda"
    cpu = "cpu"


def main(
    only: Annotated[str, typer.Option(help="Parts by name, such as solo,memory.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="List the parts and end.")] = False,
    device: Annotated[Device, typer.Option(help="The server's device.")] = Device.cuda,
    out: Annotated[Path, typer.Option(help="Where results go.")] = Path("benchmark-output"),
    clients: Annotated[int, typer.Option(min=2, help="Programs that run at once.")] = 4,
    windows: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny: tries the benchmark out.")] = False,
) -> None:
    """Compare programs that share a GPU here with native ones: alone, in time slices, under MPS."""
    if list_:
        typer.echo("\n".join(f"{part.name:<10} {part.what}" for part in PARTS))
        return
    parts = chosen_parts(only)
    machine = this_machine()
    if device is Device.cuda and machine.gpu is None:
        fail("no GPU answers here; --device cpu --quick tries the benchmark out without one")
    launcher = Launcher(device.value, folder_for_logs(out))
    print(f"{machine.words(device.value)}; {device.value} device", flush=True)
    scale = QUICK if quick else NORMAL
    bench = Bench(scale, windows, clients, machine, launcher, has_mps(launcher))
    results: list[PartResult] = []
    interrupted = not run_parts(parts, bench, out / "results.json", settings(bench, quick), results)
    show(results)
    print(f"results: {out / 'results.json'}, {picture(results, out)}, logs: {launcher.logs}")
    broken = any(row.failed for result in results for row in result.rows)
    raise typer.Exit(INTERRUPTED if interrupted else int(broken))


def chosen_parts(only: str) -> list[Part]:
    try:
        return choose(only)
    except ValueError as error:
        fail(str(error))


def folder_for_logs(out: Path) -> Path:
    logs = (out / "logs").resolve()
    if fault := folder_fault(logs):
        fail(f"cannot write into {out}: {fault}; --out chooses another folder")
    return logs


def has_mps(launcher: Launcher) -> bool:
    """Says why, if it cannot be measured on this GPU."""
    if launcher.device == "cpu":
        return False
    if fault := fault_of_mps(launcher):
        print(f"MPS is not measured: {fault}", flush=True)
    return not fault


def settings(bench: Bench, quick: bool) -> dict[str, object]:
    """What the figures depend on."""
    return {
        "mnemosyne": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": bench.launcher.device,
        "machine": bench.machine.fields(),
        "python": platform.python_version(),
        "mps": bench.has_mps,
        "quick": quick,
        "windows": bench.windows,
        "clients": bench.clients,
    }


def run_parts(
    parts: list[Part],
    bench: Bench,
    file: Path,
    about: dict[str, object],
    results: list[PartResult],
) -> bool:
    """All parts, unless Ctrl-C ends them; ``results`` and the file hold what is known so far."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for part in parts:
            results.append(PartResult(part.name))
            run_part(part, bench, results[-1], lambda: file.write_text(as_json(results, about)))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return False
    return True


def run_part(part: Part, bench: Bench, result: PartResult, keep: Callable[[], object]) -> None:
    print(f"{part.name}: {part.what}", flush=True)
    start = time.monotonic()
    with closing(rows_of(part, bench)) as rows:
        for row in rows:
            print(row_line(row), flush=True)
            result.rows.append(row)
            result.seconds = time.monotonic() - start
            keep()


def rows_of(part: Part, bench: Bench) -> Generator[Row, None, None]:
    """Its rows, from a process of its own; a last one says what ended it early."""
    log = bench.launcher.logs / f"{part.name}.log"
    count = 0
    try:
        for row in run_apart(partial(checked, part, bench), log, LIMIT):
            count += 1
            yield row
    except TimeLimit:
        yield failed(part.name, "", f"stopped after {LIMIT:g} s")
    else:
        if not count:
            yield failed(part.name, "", f"it ended early; see {log}")


def checked(part: Part, bench: Bench) -> Iterator[Row]:
    try:
        yield from part.run(bench)
    except (ProgramFailed, ServerFailed) as failure:
        yield failed(part.name, "", str(failure))
    except Exception as error:
        traceback.print_exc()
        yield failed(part.name, "", f"the benchmark itself failed: {error!r}")


def show(results: list[PartResult]) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    console.print(table(results))
    console.print(summary(results), highlight=False)


def picture(results: list[PartResult], out: Path) -> str:
    """Where it is, or why there is none."""
    try:
        draw(results, out / "results.png")
    except ImportError:
        return "no picture (matplotlib is not installed)"
    return f"picture: {out / 'results.png'}"


def fail(text: str) -> NoReturn:
    print(f"benchmarks: {text}", file=sys.stderr)
    raise typer.Exit(2)
