"""The demos' models, batches and verdicts; no process, no GPU, only a few training steps."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demos"))

import torch
from compare import TOLERANCE, Run, compare
from decoder import Decoder
from decoder import make_batch as decoder_batch
from encdec import EncoderDecoder
from encdec import make_batch as encdec_batch
from encoder import Encoder
from encoder import make_batch as encoder_batch
from training import train

CPU = torch.device("cpu")
DEMOS = {
    "encoder": (Encoder, encoder_batch),
    "decoder": (Decoder, decoder_batch),
    "encdec": (EncoderDecoder, encdec_batch),
}
SMALL = {
    "encoder": (lambda: Encoder(layers=2), encoder_batch),
    "decoder": (lambda: Decoder(layers=2), decoder_batch),
    "encdec": (lambda: EncoderDecoder(1, 1), encdec_batch),
}
NORM = 2 * 64
ATTENTION = 4 * (64 * 64 + 64) + NORM
FEED_FORWARD = 64 * 256 + 256 + 256 * 64 + 64 + NORM
EMBEDDING = 50 * 64 + 10 * 64
HEAD = NORM + 64 * 50 + 50
PARAMETERS = {
    "encoder": EMBEDDING + 16 * (ATTENTION + FEED_FORWARD) + HEAD,
    "decoder": EMBEDDING + 16 * (ATTENTION + FEED_FORWARD) + HEAD,
    "encdec": 2 * EMBEDDING + 16 * (ATTENTION + FEED_FORWARD) + 8 * ATTENTION + NORM + HEAD,
}


@pytest.mark.parametrize("name", DEMOS)
def test_model_has_the_documented_size(name: str) -> None:
    parameters = list(DEMOS[name][0]().parameters())
    assert sum(p.numel() for p in parameters) == PARAMETERS[name]
    assert {p.dtype for p in parameters} == {torch.float32}


@pytest.mark.parametrize("name", DEMOS)
def test_shapes_of_batch_and_scores(name: str) -> None:
    make_model, make_batch = SMALL[name]
    batch = make_batch()
    assert {tuple(tokens.shape) for tokens in (*batch.inputs, batch.targets)} == {(32, 10)}
    assert make_model()(*batch.inputs).shape == (32, 10, 50)


@pytest.mark.parametrize("name", ["decoder", "encdec"])
def test_a_future_token_changes_no_earlier_score(name: str) -> None:
    before, after = scores_with_token_changed(name, position=6)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_every_position_of_the_encoder_sees_the_last_token() -> None:
    before, after = scores_with_token_changed("encoder", position=9)
    assert (before != after).any(dim=-1).all()


def test_the_decoder_of_encdec_sees_the_whole_source() -> None:
    model, batch = EncoderDecoder(1, 1), encdec_batch()
    source, target = batch.inputs
    changed = with_token_changed(source, position=9)
    assert (model(source, target) != model(changed, target)).any(dim=-1).all()


def scores_with_token_changed(name: str, position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores before and after one token of the model's last input is another."""
    make_model, make_batch = SMALL[name]
    model, batch = make_model(), make_batch()
    changed = with_token_changed(batch.inputs[-1], position)
    return model(*batch.inputs), model(*batch.inputs[:-1], changed)


def with_token_changed(tokens: torch.Tensor, position: int) -> torch.Tensor:
    changed = tokens.clone()
    changed[:, position] = (changed[:, position] + 7) % 50
    return changed


@pytest.mark.parametrize("name", SMALL)
def test_two_runs_are_equal_and_learn(name: str) -> None:
    first, second = (list(train(*SMALL[name], CPU, 12)) for _ in range(2))
    assert first == second
    assert first[0] == pytest.approx(math.log(50), abs=0.5)
    assert first[-1] < first[0] - 0.5


def test_every_parameter_gets_a_gradient() -> None:
    model, batch = EncoderDecoder(1, 1), encdec_batch()
    model(*batch.inputs).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


PLAIN = Run("encoder", "cpu", "CPU", "2.x", 30.0, [4.0, 3.0, 2.0])
PROXIED = replace(PLAIN, device="cuda", device_name="GPU")


def test_equal_and_nearly_equal_losses_are_accepted() -> None:
    same = compare(PROXIED, PLAIN, 3)
    assert (same.problem, same.difference) == (None, 0.0)
    near = compare(replace(PROXIED, losses=[4.0, 3.0, 2.0 * (1 + TOLERANCE / 2)]), PLAIN, 3)
    assert near.problem is None
    assert near.difference == pytest.approx(TOLERANCE / 2)
    assert near.step == 3


@pytest.mark.parametrize(
    ("losses", "difference", "step"),
    [
        ([4.0, 3.1, 2.0], 0.1 / 3, 2),
        ([4.0, 2.9, 2.0], 0.1 / 3, 2),
        ([4.0, math.nan, 2.5], math.inf, 2),
        ([4.0, 3.0, math.inf], math.inf, 3),
    ],
)
def test_a_wrong_loss_is_named_with_its_step(
    losses: list[float], difference: float, step: int
) -> None:
    verdict = compare(replace(PROXIED, losses=losses), PLAIN, 3)
    assert verdict.difference == pytest.approx(difference)
    assert verdict.step == step
    assert verdict.problem is not None
    assert f"at step {step}" in verdict.problem


def test_a_nan_in_the_reference_is_no_agreement() -> None:
    losses = [4.0, math.nan, 2.0]
    assert compare(replace(PROXIED, losses=losses), replace(PLAIN, losses=losses), 3).problem


@pytest.mark.parametrize("losses", [[], [4.0, 3.0], [4.0, 3.0, 2.0, 1.0]])
def test_a_missing_or_extra_step_is_a_problem(losses: list[float]) -> None:
    other = replace(PROXIED, losses=losses)
    assert "3 expected" in (compare(other, PLAIN, 3).problem or "")
    plain = replace(PLAIN, losses=losses)
    assert "3 expected" in (compare(PROXIED, plain, 3).problem or "")


def test_a_program_that_fell_back_to_the_cpu_is_a_problem() -> None:
    assert "'cpu'" in (compare(PLAIN, PLAIN, 3).problem or "")
