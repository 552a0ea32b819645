"""The picture: every ratio with its spread, and the curves over the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import TITLES, PartResult
from benchmarks.rows import OURS, SIDES, Row

COLOURS = {True: "tab:green", False: "tab:red", None: "tab:grey"}
LINES = dict(zip(SIDES, ("black", "tab:orange", "tab:purple", "tab:blue"), strict=True))
LONGEST = 3.0  # a ratio that is drawn in full
LINE_HEIGHT, LEAST_HEIGHT, WIDTH = 0.25, 4.0, 14.0  # inches
Bar = tuple[str, Row, str]  # label, and the side that ours is compared with


def draw(results: Sequence[PartResult], file: Path) -> None:
    """Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    rows = [row for result in results for row in result.rows if row.windows]
    curves = list(dict.fromkeys(row.curve for row in rows if row.curve))
    bars = [(label(row, side), row, side) for row in rows for side in compared(row)]
    height = max(LEAST_HEIGHT * max(1, len(curves)), LINE_HEIGHT * len(bars))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.add_gridspec(max(1, len(curves)), 2 if curves else 1)
    draw_ratios(figure.add_subplot(grid[:, 0]), bars)
    for at, curve in enumerate(curves):
        draw_curve(figure.add_subplot(grid[at, 1]), [row for row in rows if row.curve == curve])
    figure.savefig(file)


def compared(row: Row) -> list[str]:
    """Those of curves have a drawing of their own."""
    return row.others if OURS in row.windows and not row.clients else []


def label(row: Row, side: str) -> str:
    return f"{row.name} / {TITLES[side]}  {row.ratio(side).value:.2f}"


def draw_ratios(axes: Any, bars: Sequence[Bar]) -> None:
    """The first on top; green where its target was met, red where it was missed."""
    for at, (_, row, side) in enumerate(reversed(bars)):
        least, value, most = (min(one, LONGEST) for one in extent(row, side))
        spread = [[value - least], [most - value]]
        axes.barh(at, value, xerr=spread, color=COLOURS[verdict(row, side)], height=0.7)
    axes.set_yticks(range(len(bars)), [text for text, _, _ in reversed(bars)], fontsize=7)
    axes.set(xlim=(0, LONGEST), xlabel="above 1: better here than there")
    axes.axvline(1.0, color="black", linewidth=0.8)


def extent(row: Row, side: str) -> tuple[float, float, float]:
    ratio = row.ratio(side)
    return min(ratio.turns), ratio.value, max(ratio.turns)


def verdict(row: Row, side: str) -> bool | None:
    return next((met for target, met in row.verdicts() if target.against == side), None)


def draw_curve(axes: Any, rows: Sequence[Row]) -> None:
    """A line for each side over the number of clients."""
    for side in SIDES:
        points = [(row.clients, row.value(side)) for row in rows if side in row.windows]
        if points:
            counts, values = zip(*points, strict=True)
            axes.plot(counts, values, marker="o", label=TITLES[side], color=LINES[side])
    axes.set(title=rows[0].curve, xlabel="clients", ylabel=rows[0].unit, ylim=(0, None))
    axes.set_xticks([row.clients for row in rows])
    axes.legend()
