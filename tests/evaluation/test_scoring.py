"""Scores and figures on small cases whose values can be worked out by hand."""

import pytest

from condensery.compaction import Compaction
from condensery.facts import Fact
from condensery.message import Message
from condensery.summary import Summary
from evaluation.aggregate import aggregate, ratio_with_interval
from evaluation.baselines import PLACEHOLDER, keep_newest, newest, observation_masking
from evaluation.scoring import score_summary

BRIDGE = Fact(subject="Harrow Bridge", attribute="length", value="1,942 m", source="p1", aliases=["1,942"])
TOWN = Fact(subject="Harrow Bridge", attribute="town", value="Kessel Bay", source="p1", must_keep=False)


def compaction(facts=(BRIDGE, TOWN)):
    expired = [
        Message(role="assistant", content="I need the length of Harrow Bridge."),
        Message(
            role="tool", content="[p1] Harrow Bridge is 1,942 m long. Harrow Bridge stands in Kessel Bay."
        ),
        Message(role="assistant", content="Now its age."),
        Message(role="tool", content="[p2] Harrow Viaduct opened on 3 March 1921."),
    ]
    facts = None if facts is None else list(facts)
    return Compaction(
        id="c", trajectory_id="t", question_id="q", index=0, task="Q?", expired=expired, facts=facts
    )


def score(text, facts=(BRIDGE, TOWN), reference=None, failure=None):
    return score_summary(Summary(text, failure), compaction(facts), "en", None, reference)


def test_a_faithful_summary():
    result = score("- Harrow Bridge: length 1942 m [p1]", reference="- Harrow Bridge: length 1,942 m [p1]")
    assert (result.num_kept, result.num_must_keep, result.num_distractors) == (1, 1, 0)
    assert (result.num_unsupported, result.num_statements) == (0, 1)
    assert (result.num_identifiers_kept, result.num_identifiers) == (1, 1)


def test_distractors_and_inventions_are_counted():
    result = score("Harrow Bridge stands in Kessel Bay.\nHarrow Bridge is 1,492 m long.")
    assert (result.num_kept, result.num_distractors) == (0, 1)
    assert (result.num_unsupported, result.num_statements) == (1, 2)


def test_a_value_of_another_subject_is_unsupported():
    assert score("Harrow Bridge opened on 3 March 1921.").num_unsupported == 1


def test_a_failed_summary_keeps_nothing_and_has_no_length():
    result = score(None, failure="no_block")
    assert result.num_kept == 0 and result.num_statements == 0
    figures = aggregate([result, score("- Harrow Bridge: length 1,942 m [p1]")])
    assert figures["must_keep_recall"] == 0.5
    assert figures["failures"] == {"no_block": 1}
    assert figures["tokens"] == pytest.approx(score("- Harrow Bridge: length 1,942 m [p1]").num_tokens)


def test_without_truth_recall_is_null_and_rouge_is_not():
    figures = aggregate([score("Harrow Bridge", facts=None, reference="Harrow Bridge")])
    assert figures["must_keep_recall"] is None and figures["must_keep_recall_ci"] is None
    assert figures["distractor_facts"] is None
    assert figures["rouge_l"] == 1.0


def test_rouge_reads_chinese():
    assert score("青石大桥全长九百米", facts=None, reference="青石大桥全长九百米").rouge_l == 1.0


def test_interval_covers_the_ratio_and_shrinks_with_rows():
    value, (low, high) = ratio_with_interval([1, 0] * 10, [1, 1] * 10)
    assert value == 0.5 and 0 < low < 0.5 < high < 1
    _, (narrow_low, narrow_high) = ratio_with_interval([1, 0] * 200, [1, 1] * 200)
    assert narrow_high - narrow_low < high - low
    assert ratio_with_interval([], []) == (None, None)


def test_keep_newest_keeps_the_end_within_the_budget():
    text = keep_newest(compaction(), 20, None)
    assert "1921" in text and "1,942" not in text
    assert newest("a short text", 100, None) == "a short text"


def test_observation_masking_hides_the_oldest_results_first():
    roomy = observation_masking(compaction(), 1000, None)
    assert PLACEHOLDER not in roomy
    tight = observation_masking(compaction(), 60, None)
    assert "1,942" not in tight and "1921" in tight and "I need the length" in tight
