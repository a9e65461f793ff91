"""The published reward to the digit, and missing verdicts that stay missing."""

import pytest

from reconstruct.judges import Judgement
from reconstruct.reward import block_weights, quality, reward
from tests.reconstruct.histories import instance, steps

NAN = float("nan")


def test_quality_is_the_mean_of_precision_and_recall_together() -> None:
    verdicts = [[Judgement(1.0, 0.5), Judgement(0.0, 0.0)], [Judgement(0.5, 1.0)]]
    assert quality(verdicts) == pytest.approx((1.5 + 0 + 1.5) / 3)
    assert quality([[Judgement(1.0, 1.0)]]) == 2.0


def test_a_missing_verdict_is_left_out_and_none_at_all_is_no_quality() -> None:
    assert quality([[Judgement(1.0, 1.0), None], [None, Judgement(1.0, 1.0)]]) == 2.0
    assert quality([[None], []]) is None and quality([]) is None


def test_most_verdicts_missing_is_no_quality() -> None:
    assert quality([[Judgement(1.0, 1.0), None], [None]]) is None


def test_weights_make_a_constraint_count_more_than_a_log_line() -> None:
    verdicts = [[Judgement(1.0, 1.0), Judgement(0.0, 0.0)]]
    assert quality(verdicts, [[3.0, 1.0]]) == pytest.approx(1.5)
    assert quality(verdicts, [[0.0, 0.0]]) is None
    example = instance(steps(3), [[0, 2], [1]])
    assert block_weights(example, {"result": 2.0}) == [[2.0, 2.0], [2.0]]
    assert block_weights(example, {"constraint": 2.0}) == [[1.0, 1.0], [1.0]]


def test_reward_subtracts_the_length_as_published() -> None:
    assert reward(1.2, 50, 200, 0.1) == pytest.approx(1.2 - 0.1 * 50 / 200)
    assert reward(None, 50, 200, 0.1) is None and reward(NAN, 50, 200, 0.1) is None


def test_below_the_floor_no_summary_gains_by_being_short_or_by_getting_worse() -> None:
    def floored(quality: float, num_tokens: int) -> float:
        value = reward(quality, num_tokens, 200, 0.1, quality_floor=0.8)
        assert value is not None
        return value

    assert floored(0.5, 0) == floored(0.5, 200) == pytest.approx(0.4)
    assert floored(0.8, 100) == pytest.approx(0.75)
    assert floored(0.79, 0) < floored(0.8, 200)
