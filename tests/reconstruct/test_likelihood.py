"""The likelihood reward: the shared part is shared, members do not see each other, and values that are
exchanged are exchanged everywhere."""

import random
from pathlib import Path

import pytest

from reconstruct.contrast import near_number, swap_values
from reconstruct.likelihood import (
    BlockScore,
    Reconstructor,
    load_reconstructor,
    quality_of,
    score_members,
    score_summaries,
)
from reconstruct.scores import likelihood_quality, score_of
from tests.reconstruct.histories import compaction, instance, steps


@pytest.fixture(scope="module")
def reconstructor(tiny_llama: Path) -> Reconstructor:
    return load_reconstructor(str(tiny_llama), "float32")


def test_a_group_is_scored_as_each_summary_alone(reconstructor: Reconstructor) -> None:
    one = instance(steps(4), [[0, 2], [1]])
    truth = [one.blocks[index].text for index in one.masks[0]]
    members = [(summary, truth) for summary in ("Mill 1 was built in 1841.", None, "Short.")]
    together = score_members(reconstructor, one, one.masks[0], members)
    for number, member in enumerate(members):
        [alone] = score_members(reconstructor, one, one.masks[0], [member])
        assert [tokens for _, tokens in alone] == [tokens for _, tokens in together[number]]
        for (one_sum, _), (other_sum, _) in zip(alone, together[number], strict=True):
            assert one_sum == pytest.approx(other_sum, abs=1e-3)


def test_every_hidden_block_has_a_score(reconstructor: Reconstructor) -> None:
    one = instance(steps(4), [[0, 2], [1, 3]])
    scores = score_summaries(reconstructor, one, ["Mill 1 was built in 1841.", ""], with_contrast=True)
    for of_summary in scores:
        assert [score.block for score in of_summary] == [0, 2, 1, 3]
        assert all(-1 <= score.gain <= 1 and -1 <= (score.contrast or 0) <= 1 for score in of_summary)
        assert all(score.contrast is not None for score in of_summary), "each block has numbers"
        assert 0 <= quality_of(of_summary, 0.5) <= 2


def test_quality_weighs_blocks_and_parts() -> None:
    scores = [BlockScore(0, 0.4, -0.2), BlockScore(1, 0.2, None)]
    assert quality_of(scores, 0.0) == pytest.approx(1.3)
    assert quality_of(scores, 0.5) == pytest.approx(1 + (0.1 + 0.2) / 2)
    assert quality_of(scores, 0.0, [3.0, 1.0]) == pytest.approx(1 + (3 * 0.4 + 0.2) / 4)


def test_swapped_values_are_wrong_and_consistent() -> None:
    history = "Ann Smith built it in 1843. Bob Jones came in 1790, with 12 men. Ann Smith left in 1850."
    text = "Ann Smith built it in 1843; Ann Smith had 12 men."
    swapped, number = swap_values(text, history, random.Random(0))
    assert number == 3 and swapped == swap_values(text, history, random.Random(0))[0]
    assert swapped.startswith("Bob Jones built it in ") and swapped.count("Bob Jones") == 2
    assert "1843" not in swapped and "12" not in swapped.split(" men")[0][-3:]
    assert swap_values("nothing to exchange", history, random.Random(0)) == ("nothing to exchange", 0)
    for value in ("1", "007", "1,843", "99.5"):
        assert near_number(value, random.Random(1)) != value


def test_the_audits_score_asks_the_model_once_for_both_forms(reconstructor: Reconstructor) -> None:
    asked = compaction(steps(4))
    quality = likelihood_quality(reconstructor, block_tokens=20, contrast_weight=0.5)
    summaries = ["Mill 1 was built in 1841 by Ann Smith.", ""]
    before = reconstructor.num_forwards
    plain = score_of(quality, max_tokens=100)(asked, summaries)
    guarded = score_of(quality, max_tokens=100, guarded=True)(asked, summaries)
    assert reconstructor.num_forwards == before + 2, "one for each of two masks"
    assert guarded[1] == 0.0 and None not in (*plain, *guarded) and plain[1] != 0
