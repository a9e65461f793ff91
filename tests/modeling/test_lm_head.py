"""Skipping ignored positions changes the work, not the loss and not the gradient."""

from pathlib import Path

import pytest
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
from trl.trainer import utils
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

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


def test_the_auxiliary_loss_of_a_mixture_counts_no_padding(tiny_qwen3_moe: Path) -> None:
    """Against the routers' choices for each row alone, put together."""
    score_supervised_positions_only()
    model = load_model(str(tiny_qwen3_moe), "float32")
    utils.add_fused_lm_head(model)
    rows = [{"input_ids": list(ids), "labels": list(ids)} for ids in (range(20, 60), range(90, 95))]
    ask = {"fused_lm_head": True, "output_router_logits": True}
    with torch.no_grad():
        batch = DataCollatorForLanguageModeling(pad_token_id=2)(rows)
        joined = DataCollatorForLanguageModeling(pad_token_id=2, padding_free=True)(rows)
        alone = [model.model(torch.tensor([row["input_ids"]]), output_router_logits=True) for row in rows]
        logits = tuple(map(torch.cat, zip(*(output.router_logits for output in alone), strict=True)))
        expected = load_balancing_loss_func(logits, num_experts=8, top_k=2)
        torch.testing.assert_close(model(**batch, **ask).aux_loss, expected)
        torch.testing.assert_close(model(**joined, **ask).aux_loss, expected)
        unmasked = model.model(batch["input_ids"], batch["attention_mask"], output_router_logits=True)
        assert abs(load_balancing_loss_func(unmasked.router_logits, 8, 2) - expected) > 1e-3
