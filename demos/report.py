"""Shows three programs' progress, their results as a table and their losses as a picture.

This file must never start a process or decide whether a run was good.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from compare import TOLERANCE, Comparison, relative_difference
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from terminal import Report, bar_columns

PLAIN_LINES = 5  # lines per program, where there is no terminal to draw bars on


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def live(names: Sequence[str], steps: int) -> Iterator[dict[str, Report]]:
    """A bar per program on a terminal, else a line now and then; on stderr."""
    if not sys.stderr.isatty():
        yield {name: plain_report(name, steps) for name in names}
        return
    with Progress(*bar_columns(), console=Console(stderr=True)) as progress:
        yield {name: bar_report(progress, name, steps) for name in names}


def bar_report(progress: Progress, name: str, steps: int) -> Report:
    task = progress.add_task(name, total=steps, loss="-")
    return lambda step, loss: progress.update(task, completed=step, loss=f"{loss:.4f}")


def plain_report(name: str, steps: int) -> Report:
    every = max(1, steps // PLAIN_LINES)

    def report(step: int, loss: float) -> None:
        if step % every == 0 or step in (1, steps):
            say(f"  {name:8} {step:4}/{steps}  loss {loss:.4f}")

    return report


def print_table(comparisons: Sequence[Comparison]) -> None:
    """The results on stdout."""
    first = comparisons[0]
    table = Table(
        title=f"Three programs at once on {first.proxied.device_name}, torch {first.proxied.torch}",
        caption="difference: the largest of any step's loss from plain PyTorch, relative",
    )
    table.add_column("client")
    for heading in ("steps/s", "plain CPU steps/s", "first loss", "last loss", "difference"):
        table.add_column(heading, justify="right")
    for comparison in comparisons:
        table.add_row(*cells(comparison))
    Console().print(table)


def cells(comparison: Comparison) -> tuple[str, ...]:
    proxied, plain = comparison.proxied, comparison.plain
    first, last = (f"{proxied.losses[at]:.4f}" if proxied.losses else "-" for at in (0, -1))
    return (
        proxied.name,
        f"{proxied.steps_per_second:.1f}",
        f"{plain.steps_per_second:.1f}",
        first,
        last,
        f"{comparison.difference:.1e}",
    )


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """The loss curves, and below them how far they are from plain PyTorch's, as a PNG."""
    from matplotlib.figure import Figure  # slow to import, and only needed at the end

    figure = Figure(figsize=(9, 7), layout="constrained")
    curves, apart = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for number, comparison in enumerate(comparisons):
        draw_losses(curves, comparison, f"C{number}")
        apart.plot(*differences(comparison), color=f"C{number}")
    apart.axhline(TOLERANCE, color="grey", linestyle=":")
    curves.set(ylabel="loss", title="Through Mnemosyne, three at once, and in plain PyTorch")
    apart.set(xlabel="step", ylabel="relative difference", yscale="log")
    curves.legend()
    figure.savefig(path, dpi=120)


def draw_losses(axes, comparison: Comparison, color: str) -> None:
    for run, label, style in (
        (comparison.proxied, "Mnemosyne", {"linewidth": 4, "alpha": 0.4}),
        (comparison.plain, "plain", {"linewidth": 1, "linestyle": "--"}),
    ):
        steps = range(1, len(run.losses) + 1)
        axes.plot(steps, run.losses, color=color, label=f"{run.name}, {label}", **style)


def differences(comparison: Comparison) -> tuple[list[int], list[float]]:
    """Steps and the differences that a logarithmic axis can show."""
    pairs = zip(comparison.proxied.losses, comparison.plain.losses, strict=False)
    values = [relative_difference(*pair) for pair in pairs]
    steps = [step for step, value in enumerate(values, 1) if 0 < value < math.inf]
    return steps, [values[step - 1] for step in steps]
