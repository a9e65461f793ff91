"""Rewards as the audit sees them: a compaction and summaries of it in, a number for each out.

None is a verdict that did not come: never 0, which would be a bad summary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from condensery.compaction import Compaction
from condensery.prompt import render_history, unescape
from condensery.summary import wrap_summary
from condensery.tokens import estimate_tokens
from reconstruct.blocks import blocks_of
from reconstruct.guards import guard_penalty, is_well_formed
from reconstruct.instance import Instance
from reconstruct.judges import lexical_judgement
from reconstruct.masks import draw_masks
from reconstruct.reward import reward

Score = Callable[[Compaction, list[str]], list[float | None]]
Quality = Callable[[Compaction, list[str]], list[float]]


@dataclass(frozen=True)
class Reward:
    """A score with its name; `num_model_calls` counts the calls of models that it has made so far."""

    name: str
    score: Score
    num_model_calls: Callable[[], int] = lambda: 0


def lexical_quality(compaction: Compaction, summaries: list[str]) -> list[float]:
    """Q in [0, 2] from a judge that compares the summary with the whole history, by values and words."""
    history = "\n".join([compaction.last_summary or "", unescape(render_history(compaction.expired))])
    verdicts = [lexical_judgement(history, summary) for summary in summaries]
    return [verdict.precision + verdict.recall for verdict in verdicts]


def likelihood_quality(reconstructor: Any, block_tokens: int, contrast_weight: float) -> Quality:
    """Q in [0, 2] from a frozen model (`load_reconstructor`): half of the blocks hidden at a time, all once.

    What was scored is kept: a reward with guards and one without ask for the same.
    """
    from reconstruct.likelihood import quality_of, score_summaries

    known: dict[tuple[str, ...], list[float]] = {}

    def count(text: str) -> int:
        return len(reconstructor.tokenizer.encode(text, add_special_tokens=False))

    def quality(compaction: Compaction, summaries: list[str]) -> list[float]:
        key = (compaction.id, *summaries)
        if key not in known:
            blocks = blocks_of(compaction, block_tokens, count)
            instance = Instance(
                id=compaction.id,
                compaction=compaction,
                context_tokens=count(render_history(compaction.expired)),
                blocks=blocks,
                masks=draw_masks(len(blocks), 0.5, 2, compaction.id),
                source="",
                language=compaction.language,
            )
            scores = score_summaries(reconstructor, instance, summaries, with_contrast=contrast_weight > 0)
            known[key] = [quality_of(of_blocks, contrast_weight) for of_blocks in scores]
        return known[key]

    return quality


def score_of(quality: Quality, max_tokens: int, length_weight: float = 0.1, guarded: bool = False) -> Score:
    """R = Q - lambda |S| / L_max. `guarded`: an answer without a readable block has quality 0, as a summary
    that restores nothing; of the others the guards take off what is invented, copied or repeated."""

    def score_one(compaction: Compaction, summary: str, value: float) -> float | None:
        length = (estimate_tokens(summary), max_tokens, length_weight)
        if not guarded:
            return reward(value, *length)
        is_readable = is_well_formed(wrap_summary(summary))
        penalty = guard_penalty(summary, compaction) if is_readable else 0.0
        return reward(value if is_readable else 0.0, *length, penalty=penalty)

    def score(compaction: Compaction, summaries: list[str]) -> list[float | None]:
        values = quality(compaction, summaries)
        return [score_one(compaction, *each) for each in zip(summaries, values, strict=True)]

    return score
