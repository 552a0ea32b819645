"""What the checker concludes from cases of users' models; no process, no GPU."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.checks.cases import FALLBACKS, LOADERS, Suite, version
from benchmarks.checks.items import ITEMS, choose
from benchmarks.checks.outcomes import LONGEST, Outcome, agree, conclude, quoted
from benchmarks.checks.report import as_json, item_line, table
from benchmarks.checks.results import Check, ItemResult, Verdict, judged, skipped

NEXT = math.nextafter(2.0, 3.0)


def gave(
    *results: tuple[str, float], seconds: float | None = None, eps: float = 2.0**-23
) -> Outcome:
    shas, fingerprints = zip(*results, strict=True)
    return Outcome(shas, fingerprints, (eps,) * len(results), seconds)


def verdict(
    ours: Outcome, *natives: Outcome, tolerance: float = 0.0, errors_count: bool = False
) -> Verdict:
    return conclude("case", ours, natives, tolerance, errors_count).verdict


ONE = gave(("a", 1.0), ("b", 2.0))
REFUSED = Outcome(error="RuntimeError: mnemosyne: cufftPlan is not supported")
SKIPPED = Outcome(skip="peft is not installed")


def test_the_same_bits_hold() -> None:
    found = conclude("case", ONE, [ONE, ONE], 0.0, False)
    assert found.verdict is Verdict.PASS
    assert found.cells == ("2 results", "bit-identical", "")


def test_other_bits_fail_where_native_runs_agree_even_with_an_equal_fingerprint() -> None:
    natives = [ONE] * 5
    for other in (("c", NEXT), ("c", 2.0), ("c", math.nan)):
        found = conclude("case", gave(("a", 1.0), other), natives, 0.0, False)
        assert found.verdict is Verdict.FAIL
        assert "result 2 differs" in found.figure


def test_a_result_on_which_native_runs_differ_may_be_as_far_from_them_as_they_are() -> None:
    natives = [gave(("a", 1.0), (f"b{i}", 2.0 + i / 100)) for i in range(5)]
    assert verdict(gave(("a", 1.0), ("c", 2.07)), *natives) is Verdict.PASS
    assert verdict(gave(("a", 1.0), ("c", 2.2)), *natives) is Verdict.FAIL
    assert verdict(gave(("c", 1.03), ("b0", 2.0)), *natives) is Verdict.FAIL
    assert verdict(gave(("c", 1.0), ("b0", 2.0)), natives[0], natives[0]) is Verdict.FAIL
    found = conclude("case", gave(("a", 1.0), ("c", 2.01)), natives, 0.0, False)
    assert found.cells == ("2 results, 5 runs differ", "1 within native's own spread", "")


def test_where_chance_orders_a_case_every_result_may_be_two_roundings_off() -> None:
    natives = [gave(("a", 1.0), (f"b{i}", 2.0 + i / 1e6)) for i in range(5)]
    for eps in (2.0**-23, 2.0**-10):
        near, far = 1.0 + 0.9 * eps, 1.0 + 1.1 * eps
        assert verdict(gave(("c", near), ("b0", 2.0), eps=eps), *natives) is Verdict.PASS
        assert verdict(gave(("c", far), ("b0", 2.0), eps=eps), *natives) is Verdict.FAIL
        assert verdict(gave(("c", near), ("b0", 2.0), eps=eps), *natives[:1] * 2) is Verdict.FAIL
    whole = gave(("c", 1.0), ("b0", 2.0), eps=0.0)
    assert verdict(whole, *natives) is Verdict.FAIL


def test_the_bits_of_any_native_run_hold() -> None:
    natives = [gave(("a", 1.0)), gave(("b", 2.0))]
    assert verdict(gave(("b", 2.0)), *natives) is Verdict.PASS


def test_a_tolerance_is_for_machines_where_bits_cannot_be_the_same() -> None:
    assert verdict(gave(("c", 2.01)), gave(("a", 2.0)), tolerance=0.05) is Verdict.PASS
    assert verdict(gave(("c", 2.2)), gave(("a", 2.0)), tolerance=0.05) is Verdict.FAIL


def test_another_number_of_results_fails() -> None:
    assert verdict(gave(("a", 1.0)), ONE, ONE) is Verdict.FAIL
    assert verdict(gave(("a", 1.0)), ONE, ONE, tolerance=0.05) is Verdict.FAIL


def test_a_case_refused_here_fails_and_says_why() -> None:
    found = conclude("fft", REFUSED, [ONE, ONE], 0.0, False)
    assert found.verdict is Verdict.FAIL
    assert found.cells[1] == "refused: RuntimeError: mnemosyne: cufftPlan is not supported"


def test_what_is_not_installed_is_skipped_never_passed() -> None:
    found = conclude("lora", SKIPPED, [SKIPPED, SKIPPED], 0.0, False)
    assert (found.verdict, found.figure) == (Verdict.SKIP, "skipped: peft is not installed")
    assert verdict(SKIPPED, ONE, ONE) is Verdict.FAIL


def test_an_error_of_native_pytorch_is_no_pass_except_where_errors_are_the_case() -> None:
    native = Outcome(error="RuntimeError: no Half")
    assert verdict(native, native) is Verdict.SKIP
    assert verdict(REFUSED, native) is Verdict.SKIP
    assert verdict(native, native, errors_count=True) is Verdict.PASS
    assert verdict(REFUSED, native, errors_count=True) is Verdict.FAIL
    assert verdict(ONE, native, errors_count=True) is Verdict.FAIL
    other = Outcome(error="ValueError: no Half")
    assert verdict(other, native, errors_count=True) is Verdict.FAIL


def test_addresses_in_errors_are_all_the_same() -> None:
    first, second = (Outcome.of({"error": f"E: at 0x7f{digit}"}) for digit in "12")
    assert first == second


def test_native_runs_agree_in_bits_and_errors_not_in_times() -> None:
    assert agree([gave(("a", 1.0), seconds=1.0), gave(("a", 1.0), seconds=2.0)])
    assert not agree([gave(("a", 1.0)), gave(("b", 1.0))])
    assert not agree([ONE, REFUSED])


def test_speed_is_native_time_by_ours() -> None:
    ours, natives = gave(("a", 1.0), seconds=0.002), [gave(("a", 1.0), seconds=0.003)] * 2
    assert conclude("case", ours, natives, 0.0, False).cells[2] == "1.50x (2 ms, native 3 ms)"
    assert conclude("case", ONE, natives, 0.0, False).cells[2] == ""


def test_an_outcome_is_read_from_what_the_program_said() -> None:
    said = {"case": "x", "results": [{"sha": "a", "fingerprint": NEXT.hex(), "eps": 0.25}]}
    assert Outcome.of({**json.loads(json.dumps(said)), "seconds": 0.5}) == gave(
        ("a", NEXT), seconds=0.5, eps=0.25
    )


def test_a_quoted_error_is_one_line_that_fits() -> None:
    assert quoted("E: first\nsecond") == "E: first"
    assert len(quoted("x" * 500)) == LONGEST


def compared(name: str, found: Verdict, here: str) -> Check:
    return Check(name, found, f"{here}, natively 3 results", 0.1, ("3 results", here, "1.02x"))


RESULT = ItemResult(
    16, "programs",
    [
        compared("fft", Verdict.FAIL, "refused: no"), compared("lu", Verdict.PASS, "bit-identical"),
        compared("graph", Verdict.FAIL, "refused: no graphs"), judged("rate", True, "1.00x"),
        skipped("peft", "peft is not installed"),
    ],
    9.0,
)  # fmt: skip


def test_the_line_of_an_item_names_every_case_that_failed() -> None:
    assert "2 of 5 hold, 1 skipped; fft: refused: no, natively 3 results" in item_line(RESULT)
    assert "failed as well: graph" in item_line(RESULT)


def test_cases_are_told_in_columns_and_other_checks_below_them() -> None:
    lines = table([RESULT]).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["case", "native", "speed", "ours"],
        ["fft", "3", "results", "FAIL", "1.02x", "refused:", "no"],
        ["lu", "3", "results", "PASS", "1.02x", "bit-identical"],
    ]
    assert len({line.index("1.02x") for line in lines[2:5]} | {lines[1].index("speed")}) == 1
    assert [line.split()[1] for line in lines[5:7]] == ["rate", "peft"]


def test_the_json_file_has_the_columns_of_cases() -> None:
    (item,) = json.loads(as_json([RESULT], {}))["items"]
    assert item["checks"][0]["cells"] == ["3 results", "refused: no", "1.02x"]


def test_a_suite_is_told_apart_by_its_variables() -> None:
    plain, blocking = LOADERS
    assert plain.named("events") == "events"
    assert blocking.named("events") == "events, CUDA_LAUNCH_BLOCKING=1"


def test_only_fallbacks_pass_with_an_error() -> None:
    suites = [suite for item in ITEMS for suite in getattr(item.run, "args", [()])[0]]
    assert [suite for suite in suites if suite.errors_count] == list(FALLBACKS)


def test_every_module_of_cases_exists() -> None:
    suites = [suite for item in ITEMS for suite in getattr(item.run, "args", [()])[0]]
    assert len(suites) == 8
    assert all(isinstance(suite, Suite) and suite.module.is_file() for suite in suites)


def test_the_version_of_a_package_or_its_absence_is_part_of_what_native_results_depend_on() -> None:
    assert version("pytest") == f"pytest {pytest.__version__}"
    assert version("no-such-package") == "no no-such-package"


def test_items_of_cases_follow_the_others() -> None:
    assert [item.number for item in ITEMS] == list(range(1, 17))
    assert [item.name for item in choose("10,16,14")] == ["vision", "loaders", "programs"]
