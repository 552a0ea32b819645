"""What the checker of GPU machines concludes from losses, times and texts; no process, no GPU."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.checks.cache import NativeCache
from benchmarks.checks.faults import FAULTS
from benchmarks.checks.footprint import check_memory, check_processes
from benchmarks.checks.items import ITEMS, choose
from benchmarks.checks.kills import Death, check_deaths
from benchmarks.checks.limits import MESSAGE, readable
from benchmarks.checks.losses import agree, judge, running_spread
from benchmarks.checks.programs import telling_line
from benchmarks.checks.report import as_json, item_line, table
from benchmarks.checks.results import Check, ItemResult, Verdict, judged, overall, skipped
from benchmarks.checks.sanitizer import parse
from benchmarks.checks.trainings import Training

NEXT = math.nextafter(2.0, 3.0)


def test_equal_losses_are_bit_identical() -> None:
    found = judge([3.0, 2.0], [[3.0, 2.0], [3.0, 2.0]])
    assert (found.holds, found.figure) == (True, "bit-identical, 2 steps")


def test_one_bit_is_too_much_where_native_runs_agree() -> None:
    found = judge([3.0, NEXT], [[3.0, 2.0], [3.0, 2.0]])
    assert not found.holds
    assert found.figure.startswith(f"step 2: {NEXT!r}, natively 2.0")


def test_what_native_runs_differ_by_is_allowed_from_that_step_on() -> None:
    natives = [[3.0, 2.0, 1.0], [3.0, 2.1, 1.0]]
    assert judge([3.0, 2.05, 1.01], natives).holds
    assert not judge([3.0001, 2.0, 1.0], natives).holds
    assert not judge([3.0, 2.0, 1.2], natives).holds


def test_the_nearest_native_run_counts() -> None:
    assert judge([3.0, 2.11], [[3.0, 2.0], [3.0, 2.1]]).holds


def test_the_spread_of_native_runs_never_falls() -> None:
    spreads = list(running_spread([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0]]))
    assert spreads == [0.0, 0.5, 0.5]


def test_another_number_of_steps_never_holds() -> None:
    assert not judge([3.0], [[3.0, 2.0]]).holds
    assert not judge([3.0, 2.0], [[3.0, 2.0], [3.0]]).holds


def test_losses_that_are_no_numbers_hold_only_where_native_ones_are_none_either() -> None:
    assert judge([math.nan], [[math.nan]]).holds
    assert not judge([math.nan], [[3.0]], tolerance=1.0).holds
    assert not judge([3.0], [[math.inf]], tolerance=1.0).holds


def test_a_tolerance_holds_for_every_step() -> None:
    assert judge([3.001], [[3.0]], tolerance=1e-3).holds
    assert not judge([3.004], [[3.0]], tolerance=1e-3).holds


def test_runs_agree_if_all_are_bit_identical() -> None:
    assert agree([[1.0, 2.0], [1.0, 2.0]])
    assert not agree([[1.0, 2.0], [1.0, NEXT]])


def test_kept_results_are_found_for_the_same_machine_source_and_arguments_alone(
    tmp_path: Path,
) -> None:
    source, other = tmp_path / "a.py", tmp_path / "b.py"
    source.write_text("a")
    other.write_text("b")
    cache = NativeCache(tmp_path / "cache", "H200, 2.11", fresh=False)
    assert cache.load([source], ["tiny"]) is None
    cache.store([source], ["tiny"], [[0.1, NEXT]])
    assert cache.load([source], ["tiny"]) == [[0.1, NEXT]]
    assert cache.load([source], ["base"]) is None
    assert cache.load([other], ["tiny"]) is None
    assert NativeCache(tmp_path / "cache", "H200, 2.12", False).load([source], ["tiny"]) is None
    assert NativeCache(tmp_path / "cache", "H200, 2.11", True).load([source], ["tiny"]) is None
    source.write_text("changed")
    assert cache.load([source], ["tiny"]) is None


def test_a_damaged_kept_result_counts_as_none(tmp_path: Path) -> None:
    cache = NativeCache(tmp_path / "cache", "H200", fresh=False)
    cache.store([], ["tiny"], [1.0])
    (kept,) = (tmp_path / "cache").iterdir()
    for damaged in ("", "{", "[]", '{"machine": "H200"}'):
        kept.write_text(damaged)
        assert cache.load([], ["tiny"]) is None


def test_items_are_chosen_by_number_and_name_in_their_order() -> None:
    assert [item.number for item in choose("speed, 3,1")] == [1, 3, 9]
    assert choose("") == list(ITEMS)
    with pytest.raises(ValueError, match="no item 'fast'"):
        choose("1,fast")


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [("PASS SKIP", "PASS"), ("SKIP SKIP", "SKIP"), ("PASS FAIL SKIP", "FAIL"), ("", "SKIP")],
)
def test_an_item_fails_with_any_check_and_is_skipped_with_all(verdicts: str, expected: str) -> None:
    assert overall([Verdict(name) for name in verdicts.split()]) is Verdict(expected)


RESULT = ItemResult(
    7,
    "copies",
    [judged("1 byte", True, "ok"), judged("2D", False, "wrong"), skipped("x", "y")],
    3.0,
)


def test_the_line_of_an_item_names_the_first_check_that_failed() -> None:
    assert item_line(RESULT).split("  ")[-3:] == [
        "FAIL", "1 of 3 hold, 1 skipped; 2D: wrong", "3.0 s",
    ]  # fmt: skip


def test_the_table_has_every_check_and_ends_with_the_items_that_failed() -> None:
    lines = table([RESULT]).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["PASS", "FAIL", "SKIP"]
    assert lines[-1] == "0 of 1 items pass; failed: copies"


def test_the_json_file_has_verdicts_in_words() -> None:
    written = json.loads(as_json([RESULT], {"device": "cpu"}))
    assert written["device"] == "cpu"
    (item,) = written["items"]
    assert (item["verdict"], item["checks"][1]["verdict"]) == ("FAIL", "FAIL")


def test_the_telling_line_is_the_last_error_of_the_output() -> None:
    output = "step 1\nTraceback ...\nRuntimeError: CUDA error: x\nSee the documentation\n\n"
    assert telling_line(output) == "RuntimeError: CUDA error: x"
    assert telling_line("torch.OutOfMemoryError: y\nmore") == "torch.OutOfMemoryError: y"
    assert telling_line("only\nthis") == "this"
    assert telling_line("\n") == "it printed nothing"


CLEAN = """========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
"""
FOUND = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at kernel(float *)+0x70
=========     Address 0x1000 is out of bounds
========= ERROR SUMMARY: 2 errors
"""


def test_errors_of_the_sanitizer_are_added_up_over_its_processes() -> None:
    clean = parse(CLEAN)
    assert (clean.summaries, clean.errors, clean.first) == (1, 0, "")
    both = parse(CLEAN + FOUND)
    assert (both.summaries, both.errors) == (2, 2)
    assert both.first == "Invalid __global__ read of size 4 bytes"
    assert parse("========= COMPUTE-SANITIZER\n").summaries == 0


NO_MEMORY = (
    "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 256.00 MiB of "
    "which 0 bytes is free. Of the allocated memory 256.00 MiB is allocated by PyTorch"
)


def test_the_message_of_out_of_memory_tells_the_quota_as_pytorch_writes_it() -> None:
    match = MESSAGE.search(NO_MEMORY)
    assert match is not None
    assert match["total"] == readable(256 << 20) == "256.00 MiB"
    assert readable(4 << 30) == "4.00 GiB"
    assert MESSAGE.search("CUDA error: out of memory") is None


def test_every_killed_client_must_have_been_in_mid_kernel_and_its_memory_be_back_in_time() -> None:
    good = Death(in_flight=True, back=1.5)
    assert check_deaths([good, good], 0, 1 << 30).verdict is Verdict.PASS
    for bad in (Death(False, 0.1), Death(True, 2.5)):
        assert check_deaths([good, bad], 0, 1 << 30).verdict is Verdict.FAIL
    assert check_deaths([good], 1 << 30, 1 << 30).verdict is Verdict.FAIL


def test_memory_beyond_tensors_has_a_limit() -> None:
    assert check_memory(grown=3_000_000_000, reserved=2_000_000_000).verdict is Verdict.PASS
    assert check_memory(grown=3_200_000_000, reserved=2_000_000_000).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("listed", "verdict"),
    [({10}, "PASS"), ({10, 21}, "FAIL"), ({21}, "FAIL"), ({900}, "PASS"), ({900, 901}, "FAIL")],
    ids=["worker", "worker and client", "client", "worker elsewhere", "two elsewhere"],
)
def test_only_the_worker_may_be_among_the_gpus_processes(listed: set[int], verdict: str) -> None:
    assert check_processes(listed, workers={10}, clients={21, 22}).verdict is Verdict(verdict)


def test_faults_are_recognised_by_pytorchs_words() -> None:
    assert FAULTS["assert"] in "CUDA error: device-side assert triggered"
    assert FAULTS["illegal"] in "CUDA error: an illegal memory access was encountered"


def test_a_training_is_kept_under_all_its_settings() -> None:
    one = Training("decoder", "base", True, 100, 0.1, seed=3)
    settings = ["decoder", "--size=base", "--steps=100", "--dropout=0.1", "--seed=3", "--amp"]
    assert one.arguments == settings
    assert one.name == "decoder base amp"
    assert "--amp" not in Training("decoder", "base", False, 100, 0.1).arguments


def test_a_check_keeps_what_it_found() -> None:
    assert judged("a", True, "b") == Check("a", Verdict.PASS, "b", 0.0)
    assert skipped("a", "no GPU").figure == "skipped: no GPU"
