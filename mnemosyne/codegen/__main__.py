"""``python -m mnemosyne.codegen [--check]``, from the root of the source tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemosyne.api import SPEC
from mnemosyne.codegen import calls, coverage, exports, libraries, numbers, stubs

FILES = {
    "csrc/generated/numbers.h": numbers.render,
    "csrc/generated/calls.h": calls.render,
    "csrc/generated/blas_calls.h": calls.render_blas,
    "csrc/generated/stubs.cpp": stubs.render,
    "csrc/generated/libraries.cpp": libraries.render,
    "csrc/generated/library_functions.h": libraries.render_functions,
    "csrc/generated/refused.cpp": stubs.render_refused,
    "csrc/generated/forwards.cpp": stubs.render_forwards,
    "csrc/generated/exports.map": exports.render_map,
    "csrc/generated/export_table.h": exports.render_table,
    "docs/coverage.md": coverage.render,
}


def main(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if stale.")] = False,
) -> None:
    """Generate C++ and docs from the specification in mnemosyne/api."""
    root = Path(__file__).parents[2]
    stale = [name for name, render in FILES.items() if not _is_current(root / name, render(SPEC))]
    if check and stale:
        typer.echo(f"stale: {', '.join(stale)}; run python -m mnemosyne.codegen", err=True)
        raise typer.Exit(1)
    for name in stale:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(FILES[name](SPEC))
        typer.echo(f"wrote {name}")


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    typer.run(main)
