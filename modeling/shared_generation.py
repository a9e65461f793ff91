"""Generation for groups of equal prompts, with transformers: a prompt is read and held once for its samples.

A decoding step of a batch spends most of its time on the keys and values of the prompts. Here the samples of
a group ask one copy of them, all heads in one product; each sample keeps only what it wrote itself.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from transformers.cache_utils import DynamicLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from modeling.shared_prompt import why_not_shared

ATTENTION = "shared_prompt_decoding"


def share_prefill(model: Any) -> None:
    """Make `model.generate` read equal prompts once, and its samples share what was read.

    For prompts padded on the left, as TRL passes them. What is sampled keeps its distribution; only the
    prompts' last token is read for each row.
    """
    generate = model.generate

    @functools.wraps(generate)
    def generate_shared(input_ids: torch.Tensor, attention_mask: torch.Tensor, **options: Any) -> Any:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        _, index = torch.unique(input_ids, dim=0, return_inverse=True)
        samples = [(index == number).nonzero()[:, 0] for number in range(int(index.max()) + 1)]
        first = [int(rows[0]) for rows in samples]
        if len(first) == len(input_ids) or input_ids.shape[1] == 1:
            return generate(**inputs, **options)
        name, cache = prefill(model, input_ids[first, :-1], attention_mask[first, :-1])
        options[name] = cache
        if why_not_shared(model):
            cache.reorder_cache(index)
            return generate(**inputs, **options)
        split(cache, attention_mask[first, :-1], index)
        with attending(model, cache, samples):
            return generate(**inputs, **options)

    model.generate = generate_shared


@torch.no_grad()
def prefill(model: Any, prompt_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[str, Any]:
    """(the option of `generate` for it, the cache) of these prompts, (U, P)."""
    positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    output = model(
        input_ids=prompt_ids,
        attention_mask=attention_mask,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=1,
    )
    name = "cache" if "cache" in output else "past_key_values"  # until transformers 5.23
    return name, output[name]


class OwnTokens(DynamicLayer):
    """The keys and values of what each sample wrote; those of the prompts stand before them, held once."""

    def __init__(self, prompts: Any, masks: torch.Tensor) -> None:
        super().__init__()
        self.num_prompt = prompts.keys.shape[-2]
        read = [mask.bool() for mask in masks]
        # (kv heads, tokens without padding, size) of each prompt
        self.prompt_keys = [keys[:, mask] for keys, mask in zip(prompts.keys, read, strict=True)]
        self.prompt_values = [values[:, mask] for values, mask in zip(prompts.values, read, strict=True)]

    def get_seq_length(self) -> int:
        return self.num_prompt + int(super().get_seq_length())


def split(cache: Any, masks: torch.Tensor, index: torch.Tensor) -> None:
    """From the `cache` of prompts, masked by (U, P), to that of samples, sample b of prompt `index[b]`."""
    for number, layer in enumerate(cache.layers):
        if isinstance(layer, DynamicLayer):
            cache.layers[number] = OwnTokens(layer, masks)
        else:  # a recurrent layer's state is small, and every sample changes it
            layer.reorder_cache(index)


@contextmanager
def attending(model: Any, cache: Any, samples: list[torch.Tensor]) -> Iterator[None]:
    """While it lasts, the model's attention is `attend`, for the `samples` of each prompt."""
    config, functions = model.config.get_text_config(), cast(Any, ALL_ATTENTION_FUNCTIONS)
    before = config._attn_implementation
    functions[ATTENTION] = functools.partial(attend, cache, samples)
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before
        del functions[ATTENTION]


def attend(
    cache: Any,
    samples: list[torch.Tensor],
    module: Any,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    attention_mask: None,
    scaling: float,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of the newest token of each sample, (B, heads, 1, size), to its prompt and its own tokens,
    (B, kv heads, own, size). As the model's own in eager: softmax in float32."""
    layer = cache.layers[module.layer_idx]
    batch, num_heads, _, size = query.shape
    num_kv = keys.shape[1]
    grouped = query.view(batch, num_kv, num_heads // num_kv, size)
    out = torch.empty_like(grouped)
    for rows, prompt_keys, prompt_values in zip(samples, layer.prompt_keys, layer.prompt_values, strict=True):
        own_keys, own_values, asked = keys[rows], values[rows], grouped[rows]
        by_head = asked.transpose(0, 1)  # (kv heads, samples, heads of each, size)
        of_prompt = (by_head.flatten(1, 2) @ prompt_keys.transpose(-1, -2)).unflatten(1, by_head.shape[1:3])
        scores = torch.cat([of_prompt.transpose(0, 1), asked @ own_keys.transpose(-1, -2)], dim=-1)
        weights = (scores * scaling).softmax(-1, dtype=torch.float32).to(query.dtype)
        to_prompt, to_own = weights.split([prompt_keys.shape[1], own_keys.shape[2]], dim=-1)
        read = (to_prompt.transpose(0, 1).flatten(1, 2) @ prompt_values).unflatten(1, by_head.shape[1:3])
        out[rows] = (read.transpose(0, 1) + to_own @ own_values).to(out.dtype)
    return out.view(batch, 1, num_heads, size), None
