"""From scores to figures with intervals: ratios of sums, resampled over rows (percentile bootstrap)."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from evaluation.scoring import Score

NUM_RESAMPLES, LEVEL = 2000, 0.95
# Each metric is numerator / denominator, both summed over rows; a row where either is None does not count.
METRICS: dict[str, tuple[Callable[[Score], float | None], Callable[[Score], float | None]]] = {
    "must_keep_recall": (lambda s: s.num_kept, lambda s: s.num_must_keep),
    "distractor_facts": (lambda s: s.num_distractors, lambda s: None if s.num_distractors is None else 1),
    "unsupported": (lambda s: s.num_unsupported, lambda s: s.num_statements),
    "tokens": (lambda s: s.num_tokens if s.failure is None else None, lambda s: 1),
    "compression_ratio": (
        lambda s: s.num_history_tokens - s.num_tokens if s.failure is None else None,
        lambda s: s.num_history_tokens,
    ),
    "identifier_recall": (lambda s: s.num_identifiers_kept, lambda s: s.num_identifiers),
    "rouge_l": (lambda s: s.rouge_l, lambda s: 1),
}


def aggregate(scores: list[Score], seed: int = 0) -> dict:
    """All metrics of some rows, each with `<name>_ci` [low, high]; None where it is not defined."""
    figures: dict = {"num_rows": len(scores)}
    for name in METRICS:
        figures[name], figures[f"{name}_ci"] = ratio_with_interval(*_terms(name, scores), seed=seed)
    figures["failures"] = dict(Counter(score.failure for score in scores if score.failure))
    return figures


def _terms(name: str, scores: list[Score]) -> tuple[list[float], list[float]]:
    numerator, denominator = METRICS[name]
    pairs = [(numerator(score), denominator(score)) for score in scores]
    kept = [(top, bottom) for top, bottom in pairs if top is not None and bottom is not None]
    return [top for top, _ in kept], [bottom for _, bottom in kept]


def ratio_with_interval(
    numerators: list[float], denominators: list[float], seed: int = 0
) -> tuple[float | None, list[float] | None]:
    """sum / sum and its bootstrap interval over rows; (None, None) when the denominator is empty."""
    if sum(denominators) == 0:
        return None, None
    top, bottom = np.array(numerators, float), np.array(denominators, float)
    # Whole rows are drawn: statements of one summary are not independent of each other.
    picks = np.random.default_rng(seed).integers(0, len(top), (NUM_RESAMPLES, len(top)))
    sums = bottom[picks].sum(axis=1)
    ratios = top[picks].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return round(float(top.sum() / bottom.sum()), 4), [round(float(low), 4), round(float(high), 4)]
