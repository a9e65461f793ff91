"""The reward as published (SUMONE, FACTS 4).

    Q(S) = (1/|Omega|) sum_i (r_i + p_i)      precision and recall of each hidden block, Q in [0, 2]
    R(S) = Q(S) - lambda |S| / L_max

Missing is missing: no verdict is no reward. TRL gives a summary without one no advantage, and the others of
its group the mean and the deviation of theirs alone.
"""

import math
from collections.abc import Mapping
from typing import TypeGuard

from reconstruct.blocks import Kind
from reconstruct.instance import Instance
from reconstruct.judges import Judgement

MAX_MISSING = 0.5  # of a summary's verdicts: fewer say more of the blocks they are on than of the summary


def quality(
    judgements: list[list[Judgement | None]], weights: list[list[float]] | None = None
) -> float | None:
    """Mean of precision + recall over the hidden blocks of all masks that have a verdict.

    None where most have none. Not divided by 2, as published. `weights`, in the shape of `judgements`, make
    some blocks count more.
    """
    verdicts = [verdict for of_mask in judgements for verdict in of_mask]
    shares = [share for of_mask in weights for share in of_mask] if weights else [1.0] * len(verdicts)
    present = [(verdict, share) for verdict, share in zip(verdicts, shares, strict=True) if verdict]
    total = sum(share for _, share in present)
    if not total or len(present) < (1 - MAX_MISSING) * len(verdicts):
        return None
    return sum(share * (verdict.precision + verdict.recall) for verdict, share in present) / total


def block_weights(instance: Instance, by_kind: Mapping[Kind, float]) -> list[list[float]]:
    """For each hidden block of each mask the weight of its kind, 1 where none is given."""
    return [[by_kind.get(instance.blocks[index].kind, 1.0) for index in mask] for mask in instance.masks]


def reward(
    quality: float | None,
    num_summary_tokens: int,
    max_tokens: int,
    length_weight: float,
    quality_floor: float | None = None,
    penalty: float = 0.0,
) -> float | None:
    """R = Q - lambda |S| / L_max, `max_tokens` being L_max, the summary's budget, and `length_weight` lambda.

    A `penalty` (`guards.py`) lowers Q, to 0 at least: an invention is worth no less than an answer that
    cannot be read, or a policy would learn to give those.
    With a `quality_floor` shortness pays only from that quality on: below it every summary bears the whole
    term, as if it filled its budget. (Were it spared the term, a summary would gain by getting worse.)
    """
    if not is_present(quality):
        return None
    quality = max(0.0, quality - penalty)
    is_good = quality_floor is None or quality >= quality_floor
    return quality - length_weight * (num_summary_tokens / max_tokens if is_good else 1.0)


def is_present(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
