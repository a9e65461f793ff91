"""Rewards as the audit sees them: a compaction and summaries of it in, a number for each out.

None is a verdict that did not come: never 0, which would be a bad summary.
"""

from collections.abc import Callable
from dataclasses import dataclass

from condensery.compaction import Compaction
from condensery.facts import values_in
from condensery.prompt import render_history, unescape
from condensery.summary import wrap_summary
from condensery.tokens import estimate_tokens
from reconstruct.guards import guard_penalty, is_well_formed

Score = Callable[[Compaction, list[str]], list[float | None]]


@dataclass(frozen=True)
class Reward:
    """A score with its name; `num_model_calls` counts the calls of models that it has made so far."""

    name: str
    score: Score
    num_model_calls: Callable[[], int] = lambda: 0


def lexical_score(max_tokens: int, length_weight: float = 0.1, guarded: bool = False) -> Score:
    """R = Q - lambda |S| / L_max as published, with Q in [0, 2] from a judge that only compares values.

    `guarded`: an answer without a readable block is worth 0, as a summary that restores nothing; of the
    others the guards take off what is invented, copied or repeated.
    """

    def score_one(compaction: Compaction, summary: str) -> float:
        if guarded and not is_well_formed(wrap_summary(summary)):
            return 0.0
        history = unescape(render_history(compaction.expired))
        precision, recall = lexical_judgement("\n".join([compaction.last_summary or "", history]), summary)
        reward = precision + recall - length_weight * estimate_tokens(summary) / max_tokens
        return reward - (guard_penalty(summary, compaction) if guarded else 0.0)

    return lambda compaction, summaries: [score_one(compaction, summary) for summary in summaries]


def lexical_judgement(truth: str, restored: str) -> tuple[float, float]:
    """(precision, recall) of the values (numbers, dates, names, identifiers, quotes) that came back."""
    there, back = set(values_in(truth)), set(values_in(restored))
    num_common = len(there & back)
    return num_common / max(1, len(back)), num_common / max(1, len(there))
