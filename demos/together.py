"""Train three programs at once on one GPU through Mnemosyne, and check them against plain PyTorch.

    python demos/together.py --help

Starts a server, runs encoder.py, decoder.py and encdec.py as its clients, runs the same three
without it on the CPU, and shows both. It must never train anything in its own process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import interrupt  # noqa: F401  Ctrl-C is quiet from here on
from clients import Failed, Server, client_library, run_clients, run_demo, serving
from compare import Comparison, Run, compare
from report import draw, live, print_table, say
from signals import until_signalled
from terminal import Parser, positive

DEMOS = ("encoder", "decoder", "encdec")
PICTURE = "losses.png"


def main() -> int:
    options = parse_options()
    try:
        return asyncio.run(until_signalled(demonstrate(options)))
    except Failed as failure:
        explain(failure)
        return 1


async def demonstrate(options: argparse.Namespace) -> int:
    """The whole demonstration; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="mnemosyne-demo-") as name:
        folder = Path(name)
        proxied = await proxied_runs(options, folder)
        plain = await plain_runs(options.steps, folder)
    pairs = zip(proxied, plain, strict=True)
    return conclude([compare(*pair, options.steps) for pair in pairs], options.output)


async def proxied_runs(options: argparse.Namespace, folder: Path) -> list[Run]:
    library = await client_library()
    async with server(options, folder) as found:
        say(f"{', '.join(DEMOS)}: {options.steps} steps each, all at once through Mnemosyne ...")
        with live(DEMOS, options.steps) as reports:
            return await run_clients(
                found, library, reports, options.steps, folder, options.timeout
            )


@asynccontextmanager
async def server(options: argparse.Namespace, folder: Path) -> AsyncIterator[Server]:
    """The running server we were told of, else one of our own."""
    if options.clients_socket:
        yield Server(options.clients_socket, None)
        return
    say("starting a server ...")
    async with serving(folder / "mnemosyne.sock") as own:
        yield own


async def plain_runs(steps: int, folder: Path) -> list[Run]:
    """The reference; one after another, because together they would share the processors."""
    say("the same three in plain PyTorch on the CPU, one after another ...")
    with live(DEMOS, steps) as reports:
        return [
            await run_demo(name, "cpu", steps, folder, reports[name], {"LD_PRELOAD": ""})
            for name in DEMOS
        ]


def conclude(comparisons: list[Comparison], output: Path) -> int:
    """Show the results; returns 1 if there is a problem with any of them."""
    print_table(comparisons)
    draw(comparisons, output / PICTURE)
    print(f"loss curves: {output / PICTURE}")
    problems = [c for c in comparisons if c.problem]
    for comparison in problems:
        say(f"together: {comparison.proxied.name}: {comparison.problem}")
    return 1 if problems else 0


def explain(failure: Failed) -> None:
    for child in failure.children:
        if child.tail:
            say(f"--- last output of {child.name} ---")
            say("\n".join(child.tail))
    say(f"together: {failure}")


def parse_options() -> argparse.Namespace:
    parser = Parser(prog="together", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--steps", type=positive, default=100, metavar="N", help="training steps (default: 100)")
    option("--clients-socket", type=socket, metavar="SOCKET", help="use the server that listens"
           " on SOCKET instead of starting one")  # fmt: skip
    option("--timeout", type=positive, default=600, metavar="SECONDS", help="the longest that"
           " the clients may take (default: 600)")  # fmt: skip
    option("--output", type=folder, default="demo-output", metavar="DIR", help="where the"
           " picture of the losses goes (default: demo-output)")  # fmt: skip
    options = parser.parse_args()
    if not importlib.util.find_spec("matplotlib"):
        parser.error("matplotlib is missing; pip install matplotlib")
    return options


def folder(text: str) -> Path:
    """Made if it is not there, before anything is trained."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot make '{text}': {error.strerror}") from None
    return path


def socket(text: str) -> Path:
    path = Path(text)
    if not path.is_socket():
        raise argparse.ArgumentTypeError(f"no server listens on '{text}'")
    return path


if __name__ == "__main__":
    sys.exit(main())
