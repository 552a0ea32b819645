"""Item sanitizer: memcheck finds nothing in a worker that serves a short run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checks.context import CLIENTS, NO_GPU, Context
from benchmarks.checks.results import Check, judged, skipped
from benchmarks.checks.trainings import training

TOOL = "compute-sanitizer"
TOOLKITS = "/usr/local"
LOGS = "memcheck-*.log"  # one for each process
STEPS = 3
PATIENCE = 240.0
COPIED = 1 << 20
_SUMMARY = re.compile(r"^=+ ERROR SUMMARY: (\d+) errors?", re.MULTILINE)
_FINDING = re.compile(r"^=+ (?!COMPUTE-SANITIZER|ERROR SUMMARY|LEAK SUMMARY)(\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Findings:
    """What the logs of all processes say. ``summaries``: processes that came to their end."""

    summaries: int
    errors: int
    first: str


def run(context: Context) -> Iterator[Check]:
    name = "memcheck"
    tool = find_tool()
    if not context.on_gpu or tool is None:
        yield skipped(name, f"no {TOOL}" if context.on_gpu else NO_GPU)
        return
    for old in context.logs.glob(LOGS):
        old.unlink()
    log = context.logs / LOGS.replace("*", "%p")
    prefix = [tool, "--tool", "memcheck", "--target-processes", "all", "--log-file", str(log)]
    with context.server("--clients", "2", prefix=prefix) as server:
        one = training(context, "decoder", "tiny", True, STEPS)
        with one.start(context, server) as program:
            program.ask(f"steps {STEPS}", "steps", PATIENCE)
        with context.program(server, CLIENTS / "copying.py") as program:
            program.ask(f"copy {COPIED}", "ways", PATIENCE)
        watched = all(is_watched(pid) for pid in server.worker_pids())
    if watched:
        yield check_logs(name, sorted(context.logs.glob(LOGS)))
    else:
        yield judged(name, False, f"{TOOL} did not follow into the worker")


def find_tool() -> str | None:
    """On the path, else in a CUDA toolkit where those usually are."""
    found = shutil.which(TOOL)
    there = sorted(Path(TOOLKITS).glob(f"cuda*/bin/{TOOL}"))
    return found or (str(there[-1]) if there else None)


def is_watched(pid: int) -> bool:
    """Whether the tool's library is in the process."""
    return "sanitizer" in Path(f"/proc/{pid}/maps").read_text()


def check_logs(name: str, logs: Sequence[Path]) -> Check:
    found = parse("\n".join(log.read_text(errors="replace") for log in logs))
    if found.summaries == 0:
        return judged(name, False, f"{TOOL} gave no summary ({len(logs)} logs); {found.first}")
    figure = f"{found.errors} errors in {found.summaries} processes"
    return judged(name, found.errors == 0, f"{figure}; {found.first}" if found.errors else figure)


def parse(text: str) -> Findings:
    counts = [int(count) for count in _SUMMARY.findall(text)]
    finding = _FINDING.search(text)
    return Findings(len(counts), sum(counts), finding[1] if finding else "")
