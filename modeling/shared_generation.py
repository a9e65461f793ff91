"""Generation for groups of equal prompts, with transformers: a prompt is read once, not for each sample."""

import functools
from typing import Any

import torch


def share_prefill(model: Any) -> None:
    """Make `model.generate` read equal prompts once, and sample each row from a copy of their cache.

    For prompts padded on the left, as TRL passes them. What is sampled keeps its distribution; only the
    prompts' last token is read for each row.
    """
    generate = model.generate

    @functools.wraps(generate)
    def generate_shared(input_ids: torch.Tensor, attention_mask: torch.Tensor, **options: Any) -> Any:
        _, index = torch.unique(input_ids, dim=0, return_inverse=True)
        first = [int((index == number).nonzero()[0]) for number in range(int(index.max()) + 1)]
        if len(first) < len(input_ids) and input_ids.shape[1] > 1:
            options |= prefill(model, input_ids[first, :-1], attention_mask[first, :-1], index)
        return generate(input_ids=input_ids, attention_mask=attention_mask, **options)

    model.generate = generate_shared


@torch.no_grad()
def prefill(
    model: Any, prompt_ids: torch.Tensor, attention_mask: torch.Tensor, index: torch.Tensor
) -> dict[str, Any]:
    """The option of `generate` that holds the cache of these prompts, (U, P), row `index[b]` for sample b."""
    positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    output = model(
        input_ids=prompt_ids,
        attention_mask=attention_mask,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=1,
    )
    name = "cache" if "cache" in output else "past_key_values"  # until transformers 5.23
    cache = output[name]
    cache.reorder_cache(index)
    return {name: cache}
