"""Lines, the final table and the JSON file. Values in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.markup import escape
from rich.table import Table

from benchmarks.rows import OURS, Row, Target

TITLES = {"native": "native", "time_slices": "time slices", "mps": "MPS", OURS: "here"}
VERDICTS = {True: "met", False: "missed", None: "-"}
COLUMNS = ("", "here", "there", "against", "ratio (spread)", "target", "")


@dataclass
class PartResult:
    """What a part has found so far."""

    name: str
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0


def row_line(row: Row) -> str:
    """One line for a row that has just been measured."""
    return f"  {row.name}: {row_text(row)}"


def row_text(row: Row) -> str:
    """Its figures, ratios and missed targets, or why there are none."""
    if row.note:
        return row.note
    parts = [f"{TITLES[OURS]} {figure(row, OURS)}"] if OURS in row.windows else []
    parts += [comparison(row, side) for side in row.others]
    missed = [target.text() for target, met in row.verdicts() if met is False]
    return f"{', '.join(parts)}{''.join(f'; missed {text}' for text in missed)}"


def comparison(row: Row, side: str) -> str:
    ratio = f" {row.ratio(side).text()}" if OURS in row.windows else ""
    return f"{TITLES[side]} {figure(row, side)}{ratio}"


def figure(row: Row, side: str) -> str:
    return f"{number(row.value(side))} {row.unit}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(results: Sequence[PartResult]) -> Table:
    """A line for each figure and each side that it is compared with."""
    shown = Table(title="above 1: better here than there")
    for at, column in enumerate(COLUMNS):
        shown.add_column(column, justify="left" if at in (0, 3) else "right", no_wrap=at > 0)
    for result in results:
        shown.add_section()
        shown.add_row(f"[bold]{result.name}")
        for row in result.rows:
            for cells in lines_of(row):
                shown.add_row(*map(escape, cells))
    return shown


def lines_of(row: Row) -> Iterator[tuple[str, ...]]:
    """Cells of ``COLUMNS``: a line for each side compared with, one for a target of its own."""
    name = f"  {row.name}"
    if row.note:
        yield (f"{name}: {row.note}",)
        return
    here = figure(row, OURS) if OURS in row.windows else ""
    judged = {target.against: (target.text(), VERDICTS[met]) for target, met in row.verdicts()}
    for side in (*row.others, *(side for side in judged if side not in row.others)):
        yield (name, here, *against(row, side), *judged.get(side, ("", "")))
    if not row.others and not judged:
        yield (name, here)


def against(row: Row, side: str | None) -> tuple[str, str, str]:
    """The figure of that side, its name, and the ratio to it."""
    if side is None:
        return "", "", ""
    if side not in row.windows:
        return "not measured", TITLES[side], ""
    return figure(row, side), TITLES[side], row.ratio(side).text() if OURS in row.windows else ""


def summary(results: Sequence[PartResult]) -> str:
    rows = [row for result in results for row in result.rows]
    found = [met for row in rows for _, met in row.verdicts() if met is not None]
    broken = [row.name for row in rows if row.failed]
    text = f"{sum(found)} of {len(found)} targets met"
    return text + (f"; failed: {', '.join(broken)}" if broken else "")


def as_json(results: Sequence[PartResult], settings: Mapping[str, object]) -> str:
    parts = [
        {"part": one.name, "seconds": round(one.seconds, 1), "rows": list(map(fields, one.rows))}
        for one in results
    ]
    return json.dumps({**settings, "parts": parts}, indent=1) + "\n"


def fields(row: Row) -> dict[str, object]:
    """The raw windows, and what they say."""
    compared = row.others if OURS in row.windows else []
    return {
        "name": row.name,
        "unit": row.unit,
        "clients": row.clients,
        "windows": {side: list(values) for side, values in row.windows.items()},
        "medians": {side: row.value(side) for side in row.windows},
        "ratios": {side: [*row.ratio(side).turns] for side in compared},
        "ratio": {side: row.ratio(side).value for side in compared},
        "targets": [{**target_fields(target), "met": met} for target, met in row.verdicts()],
        "note": row.note,
    }


def target_fields(target: Target) -> dict[str, object]:
    return {"target": target.text(), "against": target.against}
