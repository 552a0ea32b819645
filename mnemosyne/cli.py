"""The command ``mnemosyne``: run a program on the shared GPU, see who uses it, start the server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mnemosyne import __version__
from mnemosyne.server.paths import WHERE

app = typer.Typer(
    help="Share one GPU between unmodified PyTorch programs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_SOCKET: Any = typer.Option(help="The server's socket.", show_default=WHERE)


def client_library() -> Path:
    """The library that clients preload, beside the installed native module."""
    from mnemosyne import _native

    return Path(_native.__file__).with_name("libclient.so")


@app.command("client-path")
def client_path() -> None:
    """Print the path of libclient.so, for LD_PRELOAD."""
    typer.echo(_installed_library())


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: mnemosyne run -- python train.py --epochs 3",
)
def run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments.")],
    socket: Annotated[str, _SOCKET] = "",
    memory: Annotated[
        str, typer.Option(help="Wanted memory, such as 8GiB.", show_default="all of the quota")
    ] = "",
) -> None:
    """Run a program as a client of the server: its CUDA calls go there."""
    from mnemosyne.server.options import parse_quota

    if command[0].startswith("-"):
        _fail(f"no such option {command[0]}; write -- before the program", code=2)
    environment = dict(os.environ)
    earlier = environment.get("LD_PRELOAD", "")
    environment["LD_PRELOAD"] = f"{_installed_library()}{':' if earlier else ''}{earlier}"
    if socket:
        environment["MNEMOSYNE_SOCKET"] = socket
    if memory:
        try:
            environment["MNEMOSYNE_MEMORY_BYTES"] = str(parse_quota(memory))
        except ValueError as error:
            _fail(f"Invalid value for --memory: {error}", code=2)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}", code=127)


@app.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def server(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Start the server (the same as python -m mnemosyne.server; see --help there)."""
    os.execv(sys.executable, [sys.executable, "-m", "mnemosyne.server", *(arguments or [])])


@app.command()
def status(
    socket: Annotated[str, _SOCKET] = "",
) -> None:
    """Show the server's device and its clients."""
    from mnemosyne.server.admin import NoStatus, ask_status
    from mnemosyne.server.paths import default_socket

    path = socket or default_socket()
    try:
        answer = ask_status(path)
    except NoStatus as error:
        _fail(str(error))
    table = Table("session", "pid", "program", "memory", "quota", "since")
    for session, pid, program, used, quota, seconds in answer.sessions:
        table.add_row(
            str(session), str(pid), program, _size(used), _size(quota), f"{seconds:.0f} s"
        )
    Console().print(f"{answer.device}: {len(answer.sessions)} of {answer.clients} slots in use")
    if answer.sessions:
        Console().print(table)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mnemosyne {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Share one GPU between unmodified PyTorch programs."""


def _installed_library() -> Path:
    path = client_library()
    if not path.exists():
        _fail(f"{path} is missing; install mnemosyne again (pip install .)")
    return path


def _size(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _fail(line: str, code: int = 1) -> None:
    typer.echo(f"mnemosyne: {line}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the command."""
    app()


if __name__ == "__main__":
    main()
