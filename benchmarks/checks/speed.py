"""Item speed: parts of the benchmark. They are figures: only a program that fails fails one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.bench import Bench
from benchmarks.checks.context import Context
from benchmarks.checks.results import Check, Verdict
from benchmarks.parts import small, solo, start, together
from benchmarks.report import row_text
from benchmarks.rows import Row


def run(context: Context) -> Iterator[Check]:
    bench = context.bench
    for part in (solo, small, start):
        yield from map(as_check, part.run(bench))
    yield from map(as_check, together.run(in_one_size(bench)))


def in_one_size(bench: Bench) -> Bench:
    return replace(bench, scale=replace(bench.scale, sizes=(bench.middle,)))


def as_check(row: Row) -> Check:
    found = Verdict.PASS if row.windows else Verdict.FAIL if row.failed else Verdict.SKIP
    return Check(row.name, found, row_text(row))
