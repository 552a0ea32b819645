"""``python -m benchmarks``: how fast this is beside native PyTorch; see --help and --list."""

from __future__ import annotations

import sys

import typer

from benchmarks.checks.build import BuildFailed, build_if_stale

if __name__ == "__main__":
    try:
        build_if_stale()
    except BuildFailed as error:
        sys.exit(f"benchmarks: {error}")
    try:
        from benchmarks.cli import main  # needs what was built
    except ModuleNotFoundError as error:
        sys.exit(f"benchmarks: {error.name} is not installed; pip install '.[benchmarks]'")

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m benchmarks")
