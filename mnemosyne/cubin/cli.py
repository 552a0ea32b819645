"""The command line of the registry: lists the kernels of a file or folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from .errors import ArchError, CubinError
from .layout import Kernel
from .library import Span, find_spans, find_torch_library
from .registry import Module, Registry

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Source = tuple[Path, Span]
Listed = tuple[str, Module, Kernel]


class Format(str, Enum):
    """How kernels are printed."""

    text = "text"
    json = "json"


@app.command()
def kernels(
    sm: Annotated[
        str, typer.Option("--sm", "--sm_version", help="Architecture of the device, as in sm_90.")
    ],
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="A library (.so), a fatbin, a cubin, or a folder of .cubin files as"
            " 'cuobjdump -xelf all' leaves them. Without it: the installed PyTorch's"
            " libtorch_cuda.so.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print them.")] = Format.text,
) -> None:
    """List every kernel that a CUDA library holds for a device, with its parameter layout.

    Text has one line per kernel after a line that starts with '#', and these columns, separated
    by tabs:

    \b
      module      file the kernel is in, @ and where its fatbin starts
      registers   of each thread
      shared      static shared memory of a block, bytes
      params      offset:length of each parameter in bytes, joined by commas; - for none
      name        mangled
      demangled   as in C++

    JSON is one list of objects with the same fields; params is a list of [offset, length], and
    param_bytes, stack, max_threads and arch are added.
    """
    try:
        registry = Registry(sm)
        _WRITERS[form](_list(registry, _sources(path or find_torch_library())))
    except CubinError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _sources(path: Path) -> list[Source]:
    files = sorted(path.glob("*.cubin")) if path.is_dir() else [path]
    sources = [(file, span) for file in files for span in find_spans(file)]
    if not sources:
        raise CubinError(f"{path}: no fatbins or cubins in it")
    return sources


def _list(registry: Registry, sources: list[Source]) -> Iterator[Listed]:
    """Describe one module after the other; those without code for the device are passed over."""
    used, missing = 0, None
    for path, span in _with_progress(sources):
        try:
            module = registry.module_from_file(path, span.offset, span.size)
        except ArchError as error:
            missing = error
            continue
        used += 1
        label = f"{path.name}@{span.offset}{' (relocatable)' if module.relocatable else ''}"
        for kernel in module.kernels.values():
            yield label, module, kernel
    if missing is not None and not used:
        raise missing


def _with_progress(sources: list[Source]) -> Iterable[Source]:
    console = Console(stderr=True)
    shown = sys.stderr.isatty() and not sys.stdout.isatty()
    return track(sources, "Reading modules", console=console, disable=not shown, transient=True)


def _write_text(listed: Iterable[Listed]) -> None:
    heading = "# module\tregisters\tshared\tparams\tname\tdemangled\n"
    for item in listed:
        print(f"{heading}{_line(item)}")
        heading = ""


def _line(listed: Listed) -> str:
    label, _module, kernel = listed
    params = ",".join(f"{offset}:{size}" for offset, size in kernel.params) or "-"
    numbers = f"{kernel.registers}\t{kernel.static_shared}\t{params}"
    return f"{label}\t{numbers}\t{kernel.name}\t{kernel.demangled}"


def _write_json(listed: Iterable[Listed]) -> None:
    """Print a list with one kernel per line, while they come in."""
    before = "["
    for item in listed:
        print(f"{before}\n{json.dumps(_object(item))}", end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def _object(listed: Listed) -> dict[str, Any]:
    label, module, kernel = listed
    return {
        "module": label,
        "arch": str(module.arch),
        "registers": kernel.registers,
        "shared": kernel.static_shared,
        "stack": kernel.stack,
        "max_threads": kernel.max_threads,
        "param_bytes": kernel.param_bytes,
        "params": kernel.params,
        "name": kernel.name,
        "demangled": kernel.demangled,
    }


_WRITERS: dict[Format, Callable[[Iterable[Listed]], None]] = {
    Format.text: _write_text,
    Format.json: _write_json,
}
