"""Batched generation with a local model, for evaluation and tests; serving is vLLM's business.

Prompts are left-padded and grouped by length, so that a batch wastes little on padding; answers come back in
the order of the prompts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from modeling.chat_template import Chat, prompt_ids


@dataclass(frozen=True)
class Generation:
    """One answer. `token_ids` hold the stop token; "length" means `max_new_tokens` cut it off."""

    text: str
    token_ids: list[int]
    finish_reason: Literal["stop", "length"]

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[Chat],
    max_new_tokens: int,
    batch_size: int = 8,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    enable_thinking: bool | None = None,
    label: str = "generate",
    keep: Callable[[int, Generation], None] | None = None,
) -> list[Generation]:
    """Answers to chat prompts: greedy at temperature 0, else sampled with `seed`.

    `keep` is handed each answer, with the position of its prompt, as soon as it is there.
    """
    encoded = [prompt_ids(tokenizer, prompt, enable_thinking) for prompt in prompts]
    return generate_from_ids(
        *(model, tokenizer, encoded, max_new_tokens, batch_size, temperature, top_p, seed, label, keep)
    )


def generate_from_ids(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[list[int]],
    max_new_tokens: int,
    batch_size: int = 8,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    label: str = "generate",
    keep: Callable[[int, Generation], None] | None = None,
) -> list[Generation]:
    """`generate` for prompts that are tokens already."""
    if temperature:
        set_seed(seed)
    # The longest first, so that what does not fit into memory fails at once.
    order = sorted(range(len(encoded)), key=lambda i: -len(encoded[i]))
    answers: dict[int, Generation] = {}
    with tqdm(total=len(encoded), desc=label, unit="answer", disable=None) as progress:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            completions = _complete(
                model, tokenizer, [encoded[i] for i in batch], max_new_tokens, temperature, top_p
            )
            for position, answer in zip(batch, completions, strict=True):
                answers[position] = answer
                if keep is not None:
                    keep(position, answer)
            progress.update(len(batch))
    return [answers[i] for i in range(len(encoded))]


@torch.inference_mode()
def _complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batch: list[list[int]],
    max_new_tokens: int,
    temperature: float,
    top_p: float,
) -> list[Generation]:
    # Padded on the left: a decoder continues what stands last.
    width = max(len(ids) for ids in batch)
    pad = stop_ids(model, tokenizer)[0]
    input_ids = torch.tensor(
        [[pad] * (width - len(ids)) + ids for ids in batch], device=model.device
    )  # (B, T)
    attention_mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in batch])
    sampling: dict[str, Any] = {}
    if temperature:
        sampling = {"temperature": temperature, "top_p": top_p, "top_k": 0}
    # A mixture trained with TRL counts how its routers balance at every call, which fails on padding.
    if getattr(model.config.get_text_config(), "output_router_logits", False):
        sampling["output_router_logits"] = False
    output = model.generate(  # type: ignore[operator]
        input_ids=input_ids,
        attention_mask=attention_mask.to(model.device),
        max_new_tokens=max_new_tokens,
        do_sample=bool(temperature),
        pad_token_id=pad,
        eos_token_id=stop_ids(model, tokenizer),
        use_cache=True,  # a model that trains is configured without
        **sampling,
    )
    return [_read(tokenizer, row[width:].tolist(), stop_ids(model, tokenizer)) for row in output]


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every token that ends a turn: the tokenizer's, and those the generation config names."""
    configured = model.generation_config.eos_token_id
    more = configured if isinstance(configured, list) else [configured]
    return list(dict.fromkeys([tokenizer.eos_token_id, *(token for token in more if token is not None)]))


def _read(tokenizer: PreTrainedTokenizerBase, ids: list[int], stops: list[int]) -> Generation:
    end = next((i for i, token in enumerate(ids) if token in stops), None)
    text = str(tokenizer.decode(ids[:end], skip_special_tokens=True, clean_up_tokenization_spaces=False))
    if end is None:
        return Generation(text, ids, "length")
    return Generation(text, ids[: end + 1], "stop")
