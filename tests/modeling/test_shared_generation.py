"""Samples from a shared prefill are those of plain generation, on all kinds of layers."""

import pytest
import torch

from modeling.loading import load_model
from modeling.shared_generation import share_prefill

LENGTHS = (23, 23, 23, 9, 9)  # three samples of one prompt, two of another


def prompts() -> dict[str, torch.Tensor]:
    """Padded on the left."""
    rows = [torch.full((23,), 2) for _ in LENGTHS]
    for row, length in zip(rows, LENGTHS, strict=True):
        row[23 - length :] = torch.arange(100, 100 + length)
    mask = torch.arange(23) >= 23 - torch.tensor(LENGTHS)[:, None]
    return {"input_ids": torch.stack(rows), "attention_mask": mask.long()}


@pytest.mark.parametrize("architecture", ["tiny_llama", "tiny_qwen3_moe", "tiny_qwen3_5"])
def test_greedy_answers_are_the_same(architecture: str, request: pytest.FixtureRequest) -> None:
    model = load_model(str(request.getfixturevalue(architecture)), "float32")
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 2, "use_cache": True}
    plain = model.generate(**prompts(), **options)
    read: list[int] = []
    model.base_model.register_forward_pre_hook(
        lambda module, words, options: read.append(options["input_ids"].numel()), with_kwargs=True
    )
    share_prefill(model)
    assert torch.equal(model.generate(**prompts(), **options), plain)
    assert model.config._attn_implementation == "sdpa"  # training goes on with its own attention
    assert read[:2] == [2 * 22, 5]  # two prompts but for their last token, which each row reads


def test_samples_have_the_same_distribution(tiny_llama) -> None:
    """The first sampled token, 4,000 times, against the model's own probabilities, by chi-squared."""
    model, temperature = load_model(str(tiny_llama), "float32"), 0.05
    share_prefill(model)
    prompt = torch.arange(100, 123)[None]
    probabilities = (model(input_ids=prompt).logits[0, -1] / temperature).softmax(-1).double().detach()
    rows = prompt.expand(4000, -1)
    options = {"max_new_tokens": 1, "do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    torch.manual_seed(0)
    sampled = model.generate(
        input_ids=rows, attention_mask=torch.ones_like(rows), pad_token_id=2, use_cache=True, **options
    )[:, -1]
    counts = torch.bincount(sampled, minlength=len(probabilities)).double()
    likely = 4000 * probabilities >= 5
    observed = torch.cat([counts[likely], counts[~likely].sum()[None]])
    expected = 4000 * torch.cat([probabilities[likely], probabilities[~likely].sum()[None]])
    num_free = len(expected) - 1
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert num_free >= 10 and statistic < num_free + 4 * (2 * num_free) ** 0.5
