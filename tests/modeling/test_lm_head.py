"""Skipping ignored positions changes the work, not the loss and not the gradient."""

from pathlib import Path

import pytest
import torch
from trl.trainer import utils

from modeling.lm_head import score_supervised_positions_only
from modeling.loading import load_model


def run_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[float, torch.Tensor, int]:
    """Loss, gradient of the embedding, and how many positions went through the head."""
    num_scored = 0
    original = utils._ChunkedLogProbFunction.apply

    def counting(hidden_states, *args):
        nonlocal num_scored
        num_scored = len(hidden_states)
        return original(hidden_states, *args)

    monkeypatch.setattr(utils._ChunkedLogProbFunction, "apply", counting)
    model = load_model(str(folder), "float32")
    utils.add_fused_lm_head(model)
    input_ids = torch.arange(20, 80).view(2, 30)
    labels = input_ids.clone()
    labels[:, :25] = -100
    output = model(input_ids=input_ids, labels=labels, fused_lm_head=True)
    output.loss.backward()
    monkeypatch.undo()
    return output.loss.item(), model.get_input_embeddings().weight.grad, num_scored


def test_only_supervised_positions_are_scored(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "_use_triton", lambda device: False)
    loss, gradient, num_scored = run_loss(tiny_llama, monkeypatch)
    score_supervised_positions_only()
    fast_loss, fast_gradient, num_fast = run_loss(tiny_llama, monkeypatch)
    assert (num_scored, num_fast) == (58, 10)
    assert fast_loss == pytest.approx(loss, abs=1e-6)
    torch.testing.assert_close(fast_gradient, gradient)
