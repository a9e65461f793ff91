"""One prompt, many completions: a group's prompt is computed once, in every layer.

A row holds `[prompt, member 1, ..., member G]`, where a member is the prompt's last token and a completion,
padded. Each decoder layer runs on the prompt first, then on all members at once as a batch that continues it.
So it costs what its tokens cost: P + G c, where plain batches cost G (P + c). The idea is that of Prefix
Grouper (arXiv 2506.05433); as it is applied to whole layers here, and not to attention, it serves recurrent
layers (gated delta nets), mixtures of experts, LoRA, gradient checkpointing and FSDP alike: a layer is one
call of the model's, and its hooks run once.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from modeling.chat_template import IGNORED

KNOWN_LAYERS = {"full_attention", "linear_attention"}
KNOWN_ATTENTION = ("eager", "sdpa", "flash_attention")


@dataclass(frozen=True)
class Layout:
    """Where things stand in a row: `num_prompt` tokens, then `num_members` times `length`."""

    num_prompt: int
    num_members: int
    length: int

    def split(self, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(1, T, ...) -> prompt (1, P, ...) and members (G, n, ...)."""
        members = row[0, self.num_prompt :]
        return row[:, : self.num_prompt], members.view(self.num_members, self.length, *row.shape[2:])

    def join(self, prompt: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
        """The inverse."""
        return torch.cat([prompt, members.reshape(1, -1, *members.shape[2:])], dim=1)


class PromptState:
    """What the members see of the prompt in one layer, in the place of a cache.

    Unlike those of transformers it is never written in place, so that gradients pass through it.
    """

    def __init__(self, num_members: int) -> None:
        self.num_members = num_members
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None
        self.convolution: torch.Tensor | None = None
        self.recurrent: torch.Tensor | None = None

    def _of_each(self, state: torch.Tensor) -> torch.Tensor:
        return state.expand(self.num_members, *state.shape[1:])

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values, (B, heads, tokens, size), with those of the prompt before them."""
        if self.keys is None or self.values is None:
            self.keys, self.values = keys, values
            return keys, values
        return (
            torch.cat([self._of_each(self.keys), keys], dim=-2),
            torch.cat([self._of_each(self.values), values], dim=-2),
        )

    def get_conv_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        return None if self.convolution is None else self._of_each(self.convolution)

    def get_recurrent_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        return None if self.recurrent is None else self._of_each(self.recurrent)

    def update_conv_state(
        self, states: torch.Tensor, *_: Any, conv_kernel_size: int, **__: Any
    ) -> torch.Tensor:
        """A convolution's inputs, (B, channels, tokens), with the last of the prompt before them."""
        if self.convolution is None:
            missing = max(0, conv_kernel_size - states.shape[-1])
            self.convolution = nn.functional.pad(states, (missing, 0))[..., -conv_kernel_size:]
            return states
        return torch.cat([self._of_each(self.convolution), states], dim=-1)

    def update_recurrent_state(self, states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        if self.recurrent is None:
            self.recurrent = states
        return states

    def is_recording_past(self, *_: Any) -> bool:
        return False

    def get_recurrent_states_to_keep(self, *_: Any) -> int:
        """States between the first and the last, for going back: none (transformers 5.25 asks)."""
        return 0


def why_not_shared(model: nn.Module) -> str | None:
    """Why this model's prompts cannot be shared; None where they can."""
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    if unknown := sorted(set(getattr(config, "layer_types", None) or []) - KNOWN_LAYERS):
        return f"layers of the kind {', '.join(unknown)}"
    if not str(config._attn_implementation).startswith(KNOWN_ATTENTION):
        return f"--attn_implementation {config._attn_implementation} (take sdpa or flash_attention_2)"
    return None


def group_logprobs(
    model: nn.Module, prompt_ids: torch.Tensor, completion_ids: torch.Tensor, completion_mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities, and entropies where the head computes them, of the completions of one prompt.

    `prompt_ids` (P,) is without padding, `completion_ids` and `completion_mask` (G, c) are padded on the
    right; both results are (G, c), zero where the mask is. The model has TRL's fused head.
    """
    row, positions, layout = lay_out(prompt_ids, completion_ids)
    labels = torch.full_like(row, IGNORED)
    _, of_members = layout.split(labels)
    of_members[:, 1:] = completion_ids.masked_fill(completion_mask == 0, IGNORED)
    with sharing(model, layout):
        # A mask of ones: without any, positions that start again are taken for rows packed together.
        output = model(
            input_ids=row,
            attention_mask=torch.ones_like(row),
            position_ids=positions,
            labels=labels,
            fused_lm_head=True,
        )

    def of_completions(values: torch.Tensor) -> torch.Tensor:
        """(1, T - 1), each of the next token -> (G, c)."""
        aligned = nn.functional.pad(values, (1, 0))
        return layout.split(aligned)[1][:, 1:]

    entropy = None if output.entropy is None else of_completions(output.entropy)
    return of_completions(output.log_probs), entropy


def lay_out(
    prompt_ids: torch.Tensor, completion_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, Layout]:
    """(row, positions, layout), the first two (1, T), of a prompt (P,) and its completions (G, c)."""
    num_members, width = completion_ids.shape
    num_prompt = len(prompt_ids) - 1
    layout = Layout(num_prompt, num_members, width + 1)
    last = prompt_ids[-1].expand(num_members, 1)
    members = torch.cat([last, completion_ids], dim=1)
    row = layout.join(prompt_ids[None, :-1], members)
    places = torch.arange(num_prompt + width + 1, device=row.device)
    positions = layout.join(places[None, :num_prompt], places[num_prompt:].expand(num_members, -1))
    return row, positions, layout


@contextmanager
def sharing(model: nn.Module, layout: Layout) -> Iterator[None]:
    """While it lasts, the decoder layers take rows in this layout."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    masks = masks_of(model, layout)
    for layer in layers:
        layer.forward = partial(_forward, layer, layout, masks)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def masks_of(model: nn.Module, layout: Layout) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What the prompt's tokens see and what a member's see: all that came before. (1, 1, P, P) and
    (1, 1, n, P + n); None where the attention is causal, aligned to the end, by itself."""
    weight = next(model.parameters())
    config: Any = next(module.config for module in model.modules() if hasattr(module, "config"))
    attention = str(config.get_text_config()._attn_implementation)
    if attention.startswith("flash_attention"):
        return None, None
    num_prompt, length = layout.num_prompt, layout.length
    seen = torch.ones(length, num_prompt + length, dtype=torch.bool, device=weight.device).tril(num_prompt)
    if attention == "sdpa":
        return None, seen[None, None]
    of_prompt = torch.ones(num_prompt, num_prompt, dtype=torch.bool, device=weight.device).tril()
    lowest = torch.finfo(weight.dtype).min
    added = [
        torch.zeros_like(mask, dtype=weight.dtype).masked_fill(~mask, lowest) for mask in (of_prompt, seen)
    ]
    return added[0][None, None], added[1][None, None]


def _forward(
    layer: Any, layout: Layout, masks: Any, hidden_states: torch.Tensor, **options: Any
) -> torch.Tensor:
    """A decoder layer on the prompt, then on the members; both parts are one checkpoint."""
    forward = inspect.unwrap(type(layer).forward)
    parameters = inspect.signature(forward).parameters
    cache = "cache" if "cache" in parameters else "past_key_values"  # until transformers 5.23
    of_prompt, of_members = _split_positions(layout, options)
    if not hasattr(layer, "linear_attn"):  # which takes a mask of padding alone
        of_prompt["attention_mask"], of_members["attention_mask"] = masks

    def run(hidden_states: torch.Tensor) -> torch.Tensor:
        state = PromptState(layout.num_members)
        prompt, members = layout.split(hidden_states)
        prompt = forward(layer, prompt, **of_prompt, **{cache: state})
        members = forward(layer, members, **of_members, **{cache: state})
        return layout.join(prompt, members)

    if layer.gradient_checkpointing and layer.training and torch.is_grad_enabled():
        checkpoint = layer._gradient_checkpointing_func
        return checkpoint(run, hidden_states)  # type: ignore[no-any-return]
    return run(hidden_states)


def _split_positions(layout: Layout, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A layer's options for the prompt and for the members."""
    kept = {name: value for name, value in options.items() if name not in ("cache", "past_key_values")}
    of_prompt, of_members = kept | {"attention_mask": None}, kept | {"attention_mask": None}
    if kept.get("position_ids") is not None:
        of_prompt["position_ids"], of_members["position_ids"] = layout.split(kept["position_ids"])
    cos, sin = (layout.split(part) for part in kept["position_embeddings"])
    of_prompt["position_embeddings"], of_members["position_embeddings"] = (cos[0], sin[0]), (cos[1], sin[1])
    return of_prompt, of_members
