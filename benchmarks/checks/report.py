"""Lines, the final table and the JSON file. Values in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.checks.results import Check, ItemResult, Verdict

FAILED_WIDTH = 240


def item_line(result: ItemResult) -> str:
    name = f"{result.number} {result.name}"
    return f"{name:<14}{result.verdict.value}  {result.figure}  {result.seconds:.1f} s"


def table(results: Sequence[ItemResult]) -> str:
    """Every check of every item, and below the items that failed."""
    lines = []
    for result in results:
        lines.append(f"{result.number} {result.name}: {result.verdict.value}")
        lines += case_lines(result.checks) + check_lines(result.checks)
    return "\n".join([*lines, conclusion(results)])


def check_lines(checks: Sequence[Check]) -> list[str]:
    plain = [check for check in checks if not check.cells]
    width = max((len(check.name) for check in plain), default=0)
    return [
        f"  {check.verdict.value}  {check.name:<{width}}  {check.figure[:FAILED_WIDTH]}"
        f"  {check.seconds:.1f} s"
        for check in plain
    ]


def case_lines(checks: Sequence[Check]) -> list[str]:
    """Cases that were compared, in columns; what we gave is last, as it can be long."""
    rows = [
        (check.name, native, check.verdict.value, speed, here)
        for check in checks if check.cells for native, here, speed in [check.cells]
    ]  # fmt: skip
    if not rows:
        return []
    rows = [("case", "native", "", "speed", "ours"), *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[f"{c:<{w}}" for c, w in zip(row, widths, strict=True)] for row in rows]
    return [f"  {'  '.join(row)}".rstrip() for row in padded]


def conclusion(results: Sequence[ItemResult]) -> str:
    failed = [result.name for result in results if result.verdict is Verdict.FAIL]
    skipped = [result.name for result in results if result.verdict is Verdict.SKIP]
    parts = [f"{len(results) - len(failed) - len(skipped)} of {len(results)} items pass"]
    parts += [f"failed: {', '.join(failed)}"] if failed else []
    parts += [f"skipped: {', '.join(skipped)}"] if skipped else []
    return "; ".join(parts)


def as_json(results: Sequence[ItemResult], settings: Mapping[str, object]) -> str:
    items = [
        {
            "item": result.number,
            "name": result.name,
            "verdict": result.verdict.value,
            "figure": result.figure,
            "seconds": result.seconds,
            "checks": [{**asdict(c), "verdict": c.verdict.value} for c in result.checks],
        }
        for result in results
    ]
    return json.dumps({**settings, "items": items}, indent=1) + "\n"
