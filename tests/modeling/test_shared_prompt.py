"""A group with a shared prompt gives what each of its rows gives alone: values and gradients, on all kinds of
layers."""

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from modeling.lm_head import score_supervised_positions_only
from modeling.loading import load_model
from modeling.shared_prompt import group_logprobs, why_not_shared

PROMPT = torch.arange(100, 137)
LENGTHS = (11, 3, 1, 8)


def completions() -> tuple[torch.Tensor, torch.Tensor]:
    """(G, c): ids, and which of them count."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 49152, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return ids.masked_fill(~mask, 2), mask.long()


def plain(model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """As TRL computes them: the prompt once for each completion."""
    ids, mask = completions()
    rows = torch.cat([PROMPT.expand(len(ids), -1), ids], dim=1)
    seen = torch.cat([torch.ones(len(ids), len(PROMPT), dtype=torch.long), mask], dim=1)
    labels = rows.masked_fill(seen == 0, -100)
    labels[:, : len(PROMPT)] = -100
    output = model(input_ids=rows, attention_mask=seen, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -ids.shape[1] :], output.entropy[:, -ids.shape[1] :]


def shared(model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs, entropies = group_logprobs(model, PROMPT, *completions())
    assert entropies is not None
    return logprobs, entropies


def gradients(model: torch.nn.Module, logprobs: torch.Tensor, entropies: torch.Tensor) -> torch.Tensor:
    """Of a loss that weighs every token differently, in one vector."""
    weights = torch.linspace(-1, 1, logprobs.numel()).view_as(logprobs)
    model.zero_grad()
    ((logprobs * weights).sum() + (entropies * weights.flip(0)).sum()).backward()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.cat([weight.grad.flatten() for weight in trained if weight.grad is not None])


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ["tiny_llama", "tiny_qwen3", "tiny_qwen3_moe", "tiny_qwen3_5"])
def test_shared_prompt_equals_plain_rows(
    architecture: str, attention: str, checkpointing: bool, request: pytest.FixtureRequest
) -> None:
    score_supervised_positions_only()
    folder = str(request.getfixturevalue(architecture))
    model = load_model(folder, "float32", attn_implementation=attention).train()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if checkpointing:
        model.gradient_checkpointing_enable()
    assert why_not_shared(model) is None
    ours, theirs = shared(model), plain(model)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=0)
    ours, theirs = gradients(model, *ours), gradients(model, *theirs)
    assert (ours - theirs).norm() <= 1e-5 * theirs.norm()
    again = plain(model)
    torch.testing.assert_close(again[0], plain(model)[0])  # the layers are as they were
