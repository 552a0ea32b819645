"""Every reader of what others say refuses bad bytes in its one documented way (see fuzzing.py)."""

from __future__ import annotations

import pytest
from fuzzing import TARGETS, Fuzzer

INPUTS = 400  # mutated ones for each target; scripts/fuzz goes on


@pytest.mark.parametrize("name", TARGETS)
def test_the_kept_corpus_is_taken_or_refused(name: str) -> None:
    target = TARGETS[name]
    paths = target.corpus()
    assert paths, f"tests/corpus/{name} is empty"
    for path in paths:
        target.outcome(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_taken_or_refused(name: str) -> None:
    fuzzer = Fuzzer(TARGETS[name], seed=1)
    before = len(fuzzer.outcomes)
    for _ in range(INPUTS):
        fuzzer.try_input(fuzzer.next_input())
    assert len(fuzzer.outcomes) > before, "the mutations reach nothing new"


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, two, other = (Fuzzer(TARGETS["fatbin"], seed) for seed in (5, 5, 6))
    inputs = [one.next_input() for _ in range(20)]
    assert inputs == [two.next_input() for _ in range(20)]
    assert inputs != [other.next_input() for _ in range(20)]
