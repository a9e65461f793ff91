"""A reward that needs no decoding and no judge: how much better a frozen model predicts what was hidden.

The model reads `(C, masked H, S)` and is given the hidden blocks as its answer. Per block i

    gain_i     = clip((NLL_none - NLL_S) / NLL_none, -1, 1)          NLL per token, "none": without a summary
    contrast_i = tanh((D_S - D_none) / 2n),  D = log p(true) - log p(swapped)    n values exchanged
    Q(S)       = 1 + mean_i ((1 - w) gain_i + w contrast_i)          in [0, 2], as the published Q

The prompt of a group is computed once (`modeling/shared_prompt.py`), the summaries and their blocks as its
members.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from modeling.chat_template import render_text
from modeling.shared_prompt import group_logprobs
from reconstruct.contrast import swap_values
from reconstruct.generated import reconstruction_prompt
from reconstruct.instance import Instance

Scored = tuple[float, int]  # log-probability of a text, and its tokens


@dataclass
class Reconstructor:
    """A frozen model with TRL's fused head, and its tokenizer."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    num_forwards: int = 0


def load_reconstructor(name_or_path: str, dtype: str = "auto", revision: str | None = None) -> Reconstructor:
    from trl.trainer.utils import add_fused_lm_head

    from modeling.lm_head import score_supervised_positions_only
    from modeling.loading import load_model_and_tokenizer
    from modeling.precision import computed_dtype
    from modeling.shared_prompt import why_not_shared

    model, tokenizer = load_model_and_tokenizer(name_or_path, computed_dtype(dtype), revision)
    if reason := why_not_shared(model):
        raise ValueError(f"the reconstructor {name_or_path} has {reason}, with which no prompt can be shared")
    score_supervised_positions_only()
    add_fused_lm_head(model)
    return Reconstructor(model.requires_grad_(False), tokenizer)


@dataclass(frozen=True)
class BlockScore:
    """Of one hidden block; `contrast` None where nothing in it could be exchanged, or none was asked for."""

    block: int
    gain: float
    contrast: float | None

    def value(self, contrast_weight: float) -> float:
        if self.contrast is None:
            return self.gain
        return (1 - contrast_weight) * self.gain + contrast_weight * self.contrast


def score_summaries(
    reconstructor: Reconstructor, instance: Instance, summaries: list[str], with_contrast: bool = False
) -> list[list[BlockScore]]:
    """For each summary, the scores of all hidden blocks of all masks of the instance."""
    scores: list[list[BlockScore]] = [[] for _ in summaries]
    for mask in instance.masks:
        truth = [instance.blocks[index].text for index in mask]
        exchanged = _exchanged(instance, mask) if with_contrast else [(text, 0) for text in truth]
        members: list[tuple[str | None, list[str]]] = [(summary, truth) for summary in [None, *summaries]]
        if with_contrast:
            wrong = [text for text, _ in exchanged]
            members += [(summary, wrong) for summary in [None, *summaries]]
        scored = score_members(reconstructor, instance, mask, members)
        for number, of_summary in enumerate(scores, start=1):
            for place, index in enumerate(mask):
                without, given = scored[0][place], scored[number][place]
                contrast = None
                if num_values := exchanged[place][1]:
                    half = len(summaries) + 1
                    preferred = given[0] - scored[half + number][place][0]
                    before = without[0] - scored[half][place][0]
                    contrast = math.tanh((preferred - before) / (2 * num_values))
                of_summary.append(BlockScore(index, gain(without, given), contrast))
    return scores


def gain(without: Scored, given: Scored) -> float:
    """How much of the loss the summary takes away."""
    loss, loss_given = -without[0] / without[1], -given[0] / given[1]
    return max(-1.0, min(1.0, (loss - loss_given) / max(loss, 1e-6)))


def quality_of(scores: list[BlockScore], contrast_weight: float, weights: list[float] | None = None) -> float:
    """Q in [0, 2] from the scores of a summary's hidden blocks. `weights`: of each block, 1 by default."""
    shares = weights or [1.0] * len(scores)
    total = sum(share * score.value(contrast_weight) for score, share in zip(scores, shares, strict=True))
    return 1 + total / sum(shares)


def _exchanged(instance: Instance, mask: list[int]) -> list[tuple[str, int]]:
    """Each hidden block with wrong values, the same for every summary, and how many are wrong."""
    history = "\n".join(block.text for block in instance.blocks)
    rng = random.Random(f"{instance.id} {mask}")
    return [swap_values(instance.blocks[index].text, history, rng) for index in mask]


def score_members(
    reconstructor: Reconstructor,
    instance: Instance,
    mask: list[int],
    members: list[tuple[str | None, list[str]]],
) -> list[list[Scored]]:
    """For each (summary, blocks as they are to be predicted): the blocks' log-probabilities and tokens."""
    tokenizer, device = reconstructor.tokenizer, reconstructor.model.device
    prefix, rest_of = split_request(tokenizer, instance, mask)
    rows, spans = zip(
        *(_lay_out(tokenizer, rest_of(summary), texts) for summary, texts in members), strict=True
    )
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    counted = torch.zeros_like(ids)
    for number, of_row in enumerate(spans):
        for start, end in of_row:
            counted[number, start:end] = 1
    reconstructor.num_forwards += 1
    with torch.no_grad():
        logprobs, _ = group_logprobs(reconstructor.model, torch.tensor(prefix, device=device), ids, counted)
    return [
        [(logprobs[number, start:end].sum().item(), end - start) for start, end in of_row]
        for number, of_row in enumerate(spans)
    ]


def split_request(
    tokenizer: PreTrainedTokenizerBase, instance: Instance, mask: list[int]
) -> tuple[list[int], Callable[[str | None], str]]:
    """(tokens of what all summaries of a mask share, a function from a summary to the rest of the text)."""

    def text_of(summary: str | None) -> str:
        request = reconstruction_prompt(instance, mask, summary)
        return render_text(tokenizer, request, None, add_generation_prompt=True)

    with_one, without = text_of("x"), text_of(None)
    apart = next(i for i, (one, other) in enumerate(zip(with_one, without)) if one != other)
    shared = without[:apart].rpartition("\n")[0]
    return tokenizer.encode(shared, add_special_tokens=False), lambda summary: text_of(summary)[len(shared) :]


def _lay_out(
    tokenizer: PreTrainedTokenizerBase, rest: str, texts: list[str]
) -> tuple[list[int], list[tuple[int, int]]]:
    """(tokens after the shared part, where each block stands in them)."""

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    ids, spans = encode(rest), []
    for number, text in enumerate(texts, start=1):
        ids += encode(f'<span id="{number}">')
        start = len(ids)
        ids += encode(text)
        spans.append((start, len(ids)))
        ids += encode("</span>\n")
    return ids, spans
