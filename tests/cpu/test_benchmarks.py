"""The benchmark on the CPU device: it measures both sides, reports, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, wait_until
from mps_stand_in import fake_mps

sys.path.insert(0, str(ROOT))

from benchmarks.bench import Bench, attempted, everybody, fault_of_mps, load, teams
from benchmarks.checks.machine import this_machine
from benchmarks.checks.programs import ProgramFailed
from benchmarks.cli import rows_of, run_parts
from benchmarks.launcher import Launcher
from benchmarks.parts import together
from benchmarks.parts.items import Part
from benchmarks.report import PartResult
from benchmarks.rows import MPS, NATIVE, OURS, SLICES, AtLeast, Row
from benchmarks.scale import QUICK

pytestmark = pytest.mark.timeout(600)  # many programs import PyTorch
COMMAND = [sys.executable, "-m", "benchmarks", "--device", "cpu", "--quick"]


def benchmark(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options], cwd=ROOT, text=True, capture_output=True, timeout=280
    )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(QUICK, 1, 2, this_machine(), Launcher("cpu", tmp_path), has_mps=False)


def test_both_sides_are_measured_and_their_ratio_reported(tmp_path: Path) -> None:
    done = benchmark("--windows=2", "--clients=2", "--only=small,idle", f"--out={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert (found["device"], found["windows"], found["quick"]) == ("cpu", 2, True)
    assert found["machine"]["torch"]
    small, idle = found["parts"]
    issue = small["rows"][0]
    assert issue["name"] == "x.add_(1), issue"
    pairs = zip(issue["windows"][NATIVE], issue["windows"][OURS], strict=True)
    assert issue["ratios"][NATIVE] == [native / ours for native, ours in pairs]
    assert len(issue["ratios"][NATIVE]) == 2
    assert issue["targets"][0]["met"] == (issue["ratio"][NATIVE] >= 1.5)
    assert small["rows"][-1]["note"] == "skipped: no GPU"
    assert list(idle["rows"][0]["windows"]) == [OURS]
    assert "x.add_(1), issue: here " in done.stdout
    assert "┃ against ┃" in done.stdout


def test_every_kind_of_workload_runs_natively_and_as_a_client(bench: Bench) -> None:
    with teams(bench, (NATIVE, OURS), 1) as both:
        for name in ("encdec-tiny-fp32", "decoder-tiny-bf16", "demo-encoder", "gpt2"):
            load(bench.scale, everybody(both), name)
            for one in both.values():
                (answer,) = one.go(0.01)
                assert answer["steps"] >= 1
                assert ("p99_s" in answer) == (name == "gpt2")
        (trace,) = both[OURS].trace(0.01)
        assert trace["ends"] == sorted(trace["ends"])


def test_a_workload_that_fails_is_one_line_and_the_next_one_runs(bench: Bench) -> None:
    def look(name: str) -> Iterator[Row]:
        load(bench.scale, everybody(sides), name)
        yield Row(name, "steps/s", {NATIVE: [sides[NATIVE].rate(0.01)]})

    with teams(bench, (NATIVE,), 1) as sides:
        rows = [
            row
            for name in ("demo-nonsense", "demo-decoder")
            for row in attempted(name, "steps/s", partial(look, name), *sides.values())
        ]
    assert [row.name for row in rows] == ["demo-nonsense", "demo-decoder"]
    assert rows[0].note.startswith("failed: native-workloads ended before its answer")
    assert "No module named 'nonsense'" in rows[0].note
    assert rows[1].value(NATIVE) > 0


def test_programs_that_share_are_measured_in_time_slices_under_mps_and_here(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = fake_mps(tmp_path, monkeypatch)
    assert fault_of_mps(bench.launcher) == ""
    (row,) = together.run(replace(bench, has_mps=True))
    assert row.name == "2 x decoder tiny bf16"
    assert {side: len(found) for side, found in row.windows.items()} == {SLICES: 1, MPS: 1, OURS: 1}
    assert dict(row.verdicts()) == {AtLeast(MPS, 1.05): row.ratio(MPS).value >= 1.05}
    assert [line.split()[0] for line in notes.read_text().splitlines()] == ["start", "quit"] * 2


def part_of(*values: Row | Exception) -> Part:
    """One that yields rows, or raises."""

    def run(bench: Bench) -> Iterator[Row]:
        for value in values:
            if isinstance(value, Exception):
                raise value
            yield value

    return Part("some", "", run)


FIGURE = Row("steps", "steps/s", {OURS: [1.0]})


def test_a_part_that_breaks_keeps_its_rows_and_the_next_one_runs(
    bench: Bench, tmp_path: Path
) -> None:
    parts = [part_of(FIGURE, ProgramFailed("gone")), part_of(ValueError("odd")), part_of(FIGURE)]
    results: list[PartResult] = []
    assert run_parts(parts, bench, tmp_path / "results.json", {}, results)
    found = json.loads((tmp_path / "results.json").read_text())["parts"]
    notes = [[row["note"] for row in part["rows"]] for part in found]
    assert notes == [
        ["", "failed: gone"], ["failed: the benchmark itself failed: ValueError('odd')"], [""],
    ]  # fmt: skip


def test_a_part_that_says_nothing_has_failed(bench: Bench) -> None:
    (row,) = rows_of(part_of(), bench)
    assert row.failed
    assert row.note.startswith("failed: it ended early; see ")


def test_ctrl_c_ends_every_process_and_keeps_what_was_found(tmp_path: Path) -> None:
    options = ["--only", "small,together", "--clients", "2", "--windows", "60"]
    running = subprocess.Popen(
        [*COMMAND, *options, "--out", str(tmp_path)], cwd=ROOT, text=True, stdout=subprocess.PIPE
    )
    process = psutil.Process(running.pid)
    kept = tmp_path / "results.json"
    assert wait_until(lambda: kept.exists() and "x.sum" in kept.read_text(), 200)
    started = process.children(recursive=True)
    assert len(started) >= 5  # the part, a server with its worker, a program on each side
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "interrupted" in output
    assert "x.sum().item()" in output
    assert psutil.wait_procs(started, timeout=10)[1] == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--only", "small,fast"], "no part 'fast'; there are solo, small,"),
        (["--device", "cuda"], "no GPU answers here; --device cpu --quick tries"),
        (["--out", "README.md"], "cannot write into README.md: Not a directory; --out chooses"),
    ],
)
def test_what_cannot_be_run_is_one_line(options: list[str], complaint: str) -> None:
    if "cuda" in options and this_machine().gpu is not None:
        pytest.skip("there is a GPU")
    done = benchmark(*options)
    assert done.returncode == 2
    assert done.stderr.startswith(f"benchmarks: {complaint}")
    assert len(done.stderr.splitlines()) == 1


def test_the_protocol_is_measured_and_compared_with_an_earlier_run(tmp_path: Path) -> None:
    earlier, now = tmp_path / "earlier.json", tmp_path / "now.json"
    earlier.write_text(json.dumps({"windows": {"launch": [1e-3], "lane": [1e9], "one": [1.0]}}))
    command = [sys.executable, "-m", "benchmarks.protocol", "--windows=2", "--seconds=0.2"]
    done = subprocess.run(
        [*command, f"--json={now}", f"--compare={earlier}"], cwd=ROOT, text=True,
        capture_output=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (complaint,) = done.stderr.splitlines()
    assert complaint.startswith("benchmarks.protocol: worse by more than 20%: stub: launch: ")
    assert "lane" not in complaint
    assert "ring" not in complaint
    windows = json.loads(now.read_text())["windows"]
    assert {len(values) for name, values in windows.items() if name != "idle"} == {2}
    assert all(value > 0 for name, values in windows.items() if name != "idle" for value in values)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("-m benchmarks.protocol --json /proc/none/x", "cannot write /proc/none/x"),
        ("scripts/gpu-check --device cpu --json /proc/none/x", "cannot write /proc/none/x"),
        ("scripts/gpu-check --device cpu --log-dir /proc/none", "cannot write into /proc/none"),
        ("-m benchmarks --device cpu --out /proc/none", "cannot write into /proc/none"),
        ("demos/together.py --output /proc/none", "cannot make '/proc/none'"),
        ("demos/encoder.py --device cpu --json /proc/none/x", "cannot write '/proc/none/x'"),
    ],
)
def test_results_that_cannot_be_written_end_it_before_anything_is_measured(
    command: str, says: str
) -> None:
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=ROOT, text=True, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"{says}: No such file or directory" in line


@pytest.mark.parametrize(
    "command", ["-m benchmarks.protocol --seconds=-1", "scripts/gpu-check --limit=-5"]
)
def test_times_are_not_negative(command: str) -> None:
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=ROOT, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert "greater than or equal to" in done.stderr
