from pathlib import Path

import torch

from modeling.chat_template import render_pair
from modeling.fixed_prompts import fixed_chats
from modeling.loading import load_model_and_tokenizer
from modeling.logprobs import completion_distributions, completion_logprobs, kl_divergence


def test_completion_logprobs_equal_those_from_all_logits(tiny_llama: Path) -> None:
    model, tokenizer = load_model_and_tokenizer(str(tiny_llama))
    pair = render_pair(tokenizer, *fixed_chats()[0])
    with torch.inference_mode():
        logits = model(torch.tensor([pair.input_ids])).logits[0].float()
    everything = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(pair.input_ids)[1:, None])[:, 0]
    expected = everything[pair.num_prompt_tokens - 1 :]
    torch.testing.assert_close(completion_logprobs(model, pair), expected)


def test_kl_divergence_is_pytorchs_and_zero_to_oneself(tiny_llama: Path) -> None:
    model, tokenizer = load_model_and_tokenizer(str(tiny_llama))
    p = completion_distributions(model, render_pair(tokenizer, *fixed_chats()[0]))[:8]
    q = completion_distributions(model, render_pair(tokenizer, *fixed_chats()[1]))[:8]
    expected = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(kl_divergence(p, q), expected)
    assert kl_divergence(p, p).abs().max() == 0 < kl_divergence(p, q).min()
