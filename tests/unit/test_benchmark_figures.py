"""What the benchmark concludes from its windows: ratios, targets, lines; no process, no GPU."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest
import typer
from mps_stand_in import fake_mps
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import protocol
from benchmarks.bench import fault_of_mps
from benchmarks.checks import mps
from benchmarks.launcher import Launcher
from benchmarks.parts.fairness import distances
from benchmarks.parts.items import PARTS, choose
from benchmarks.parts.memory import settled
from benchmarks.picture import draw
from benchmarks.report import PartResult, as_json, lines_of, row_line, row_text, summary, table
from benchmarks.rows import (
    MPS,
    NATIVE,
    OURS,
    SLICES,
    AtLeast,
    AtMost,
    Beyond,
    Row,
    failed,
    point,
    quotient,
    skipped,
)
from benchmarks.turns import in_turns
from benchmarks.workloads.gpt2 import Stamps

RATES = {NATIVE: [10.0, 20.0, 10.0], OURS: [15.0, 20.0, 20.0]}
TIMES = {NATIVE: [2.0, 4.0, 3.0], OURS: [1.0, 4.0, 2.0]}


def test_a_ratio_is_the_median_over_turns_and_above_one_if_ours_is_better() -> None:
    assert Row("steps", "steps/s", RATES).ratio(NATIVE).turns == [1.5, 1.0, 2.0]
    assert Row("steps", "steps/s", RATES).ratio(NATIVE).value == 1.5
    assert Row("wait", "us", TIMES).ratio(NATIVE).text() == "1.50 (1.00-2.00)"


def test_a_ratio_near_one_says_on_which_side_it_is() -> None:
    rates = {NATIVE: [10.0, 10.0, 10.0], OURS: [9.99, 9.998, 10.1]}
    assert Row("steps", "steps/s", rates).ratio(NATIVE).text() == "0.9998 (0.9990-1.0100)"


def test_nothing_is_as_good_as_nothing_and_endlessly_better_than_something() -> None:
    assert quotient(0.0, 0.0, "% CPU") == 1.0
    assert quotient(0.0, 3.0, "% CPU") == math.inf
    assert quotient(0.0, 3.0, "steps/s") == 0.0


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (AtLeast(NATIVE, 1.5), True), (AtLeast(NATIVE, 1.51), False), (AtLeast(MPS, 1.0), None),
        (Beyond(NATIVE, -1.0), True), (Beyond(NATIVE, -1.1), False), (Beyond(MPS, 9.0), None),
        (AtMost(2.0), True), (AtMost(1.9), False),
    ],
)  # fmt: skip
def test_a_target_is_met_missed_or_not_measured(
    target: AtLeast | Beyond | AtMost, met: bool
) -> None:
    assert list(Row("wait", "us", TIMES, (target,)).verdicts()) == [(target, met)]


def test_each_side_is_measured_once_a_window_in_turns_and_the_first_window_is_left_out() -> None:
    called: list[str] = []

    def side(name: str) -> int:
        called.append(name)
        return len(called)

    found = in_turns(2, {name: lambda name=name: side(name) for name in "abc"})
    assert "".join(called) == "abcbcacab"
    assert found == {"a": [6, 8], "b": [4, 9], "c": [5, 7]}


def test_a_row_has_a_line_for_each_side_and_each_target() -> None:
    windows = {SLICES: [50.0], MPS: [100.0], OURS: [110.0]}
    row = Row("4 x decoder", "steps/s", windows, (AtLeast(MPS, 1.0), AtLeast(SLICES, 2.5)))
    assert list(lines_of(row)) == [
        ("  4 x decoder", "110 steps/s", "50 steps/s", "time slices", "2.20 (2.20-2.20)",
         "≥ 2.50", "missed"),
        ("  4 x decoder", "110 steps/s", "100 steps/s", "MPS", "1.10 (1.10-1.10)", "≥ 1.00", "met"),
    ]  # fmt: skip
    assert row_text(row) == (
        "here 110 steps/s, time slices 50 steps/s 2.20 (2.20-2.20), "
        "MPS 100 steps/s 1.10 (1.10-1.10); missed ≥ 2.50"
    )


def test_a_side_that_was_not_measured_is_named_with_its_target() -> None:
    row = Row("4 x decoder", "steps/s", {SLICES: [50.0], OURS: [110.0]}, (AtLeast(MPS, 1.0),))
    assert list(lines_of(row))[1] == (
        "  4 x decoder", "110 steps/s", "not measured", "MPS", "", "≥ 1.00", "-",
    )  # fmt: skip


def test_a_row_of_ours_alone_is_judged_alone() -> None:
    row = Row("idle", "% CPU", {OURS: [0.0]}, (AtMost(0.01),))
    assert list(lines_of(row)) == [("  idle", "0 % CPU", "", "", "", "≤ 0.01", "met")]
    assert list(lines_of(Row("memory", "MB", {OURS: [7.0]}))) == [("  memory", "7 MB")]


RESULTS = [
    PartResult("solo", [
        Row("tiny [fp32]", "steps/s", RATES, (AtLeast(NATIVE, 1.0),)),
        skipped("resnet50", "steps/s", "torchvision is not installed"),
        failed("gpt2", "tokens/s", "native-workloads ended [early]"),
    ], 12.34),
    PartResult("curve", [
        point("decoder in sum", 1, "steps/s", {SLICES: [1.0], OURS: [2.0]}),
        point("decoder in sum", 2, "steps/s", {SLICES: [2.0], OURS: [3.0]}),
    ], 5.0),
]  # fmt: skip


def test_the_table_shows_everything_as_it_is_called() -> None:
    console = Console(width=132, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(table(RESULTS))
    text = console.export_text()
    for part in ("tiny [fp32]", "ended [early]", "torchvision is not installed", "met", "1.50"):
        assert part in text
    assert summary(RESULTS) == "1 of 1 targets met; failed: gpt2"
    assert row_line(RESULTS[0].rows[1]) == "  resnet50: skipped: torchvision is not installed"


def test_the_file_holds_raw_windows_ratios_and_targets() -> None:
    found = json.loads(as_json(RESULTS, {"device": "cpu"}))
    assert found["device"] == "cpu"
    solo, curve = found["parts"]
    assert (solo["part"], solo["seconds"]) == ("solo", 12.3)
    assert solo["rows"][0] == {
        "name": "tiny [fp32]", "unit": "steps/s", "clients": 0, "windows": RATES, "note": "",
        "medians": {NATIVE: 10.0, OURS: 20.0}, "ratios": {NATIVE: [1.5, 1.0, 2.0]},
        "ratio": {NATIVE: 1.5},
        "targets": [{"target": "≥ 1.00", "against": NATIVE, "met": True}],
    }  # fmt: skip
    assert solo["rows"][2]["note"] == "failed: native-workloads ended [early]"
    assert [row["clients"] for row in curve["rows"]] == [1, 2]


def test_a_picture_is_drawn_of_ratios_and_curves_and_of_nothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, results in (("all", RESULTS), ("nothing", [])):
        draw(results, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_points_of_a_curve_share_its_name() -> None:
    assert {row.curve for row in RESULTS[1].rows} == {"decoder in sum"}
    assert Row("4 x decoder, sum", "steps/s").curve == ""


def test_programs_that_step_alike_are_nothing_apart() -> None:
    alike = [[at / 10 for at in range(101)]] * 3
    assert set(distances(alike, 5.0)) == {0.0}


def test_the_worst_window_counts_and_the_mean_is_the_measure() -> None:
    steady = [at / 10 for at in range(101)]
    slow_at_first = [at / 5 for at in range(26)] + [5 + at / 10 for at in range(1, 51)]
    found = list(distances([steady, slow_at_first], 5.0))
    assert found[0] == pytest.approx(2 / 3, abs=0.02)  # 50 and 25 steps
    assert found[-1] == pytest.approx(0.0, abs=0.01)
    assert found == sorted(found, reverse=True)


def test_a_trace_shorter_than_a_window_is_looked_at_once() -> None:
    assert list(distances([[0.0, 1.0], [0.0, 0.5, 1.0]], 5.0)) == [pytest.approx(0.4)]


def test_a_texts_tokens_are_timed_from_the_prompt_on() -> None:
    import torch

    stamps = Stamps()
    for _ in range(4):
        stamps.put(torch.zeros(1, dtype=torch.int64))
    assert len(stamps.seconds()) == 3
    assert min(stamps.seconds()) >= 0


def test_memory_is_read_once_it_stays_the_same() -> None:
    assert settled(iter([9.0, 5.0, 3.0, 3.0, 1.0]).__next__) == 3.0


def test_parts_are_chosen_by_name_in_their_order() -> None:
    assert [part.name for part in choose("idle, solo")] == ["solo", "idle"]
    assert choose("") == list(PARTS)
    with pytest.raises(ValueError, match="no part 'fast'; there are solo, small"):
        choose("fast")


def test_mps_has_folders_of_its_own_and_ends_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = fake_mps(tmp_path, monkeypatch)
    assert mps.available()
    seen: list[dict[str, str]] = []

    def share() -> None:
        with mps.running() as folders:
            seen.append(folders)
            assert Path(folders["CUDA_MPS_LOG_DIRECTORY"]).is_dir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        share()
    pipe = seen[0]["CUDA_MPS_PIPE_DIRECTORY"]
    assert notes.read_text().splitlines() == [f"start {pipe}", f"quit {pipe}"]
    assert not Path(pipe).exists()


def test_mps_that_does_not_start_is_a_reason_not_to_measure_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mps(tmp_path, monkeypatch, starts=False)
    fault = fault_of_mps(Launcher("cpu", tmp_path))
    assert mps.CONTROL in fault
    assert "exit status 1" in fault
    monkeypatch.setenv("PATH", "/nowhere")
    assert fault_of_mps(Launcher("cpu", tmp_path)) == f"there is no {mps.CONTROL}"


EARLIER = {"launch": [100.0, 90.0, 500.0], "one": [2e6], "idle": [0.0]}


def test_what_is_worse_than_in_an_earlier_run_is_named_with_both_figures() -> None:
    now = {"launch": [130.0], "one": [2.5e6], "idle": [0.0], "lane": [9.0]}
    assert protocol.worse(now, EARLIER, tolerance=0.2) == ["stub: launch: 130 ns, earlier 100 ns"]
    assert protocol.worse(now, EARLIER, tolerance=0.31) == []
    assert protocol.worse({**now, "one": [1.6e6]}, EARLIER, 0.31) == []
    assert protocol.worse({**now, "one": [1.5e6], "idle": [0.1]}, EARLIER, 0.31) == [
        "ring: launches, one client: 1,500,000 /s, earlier 2,000,000 /s",
        "an idle server: 0.1 % CPU, earlier 0 % CPU",
    ]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"windows": {"launch": 3}}'])
def test_a_file_without_figures_is_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "earlier.json"
    file.write_text(content)
    with pytest.raises(typer.Exit) as end:
        protocol.read(file)
    assert end.value.exit_code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"benchmarks.protocol: {file} holds no figures of an earlier run")
    assert len(said.splitlines()) == 1
