"""Excerpts: an exact budget, whole characters, a count that is true."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condensery.tokens import count_tokens
from data_synthesis.excerpt import MARK, MIN_TOKENS, excerpt

PIECES = ["word ", "漢字", "e\u0301", "👩\u200d💻", "👍🏽", "\n", "https://a.b/c?d=1 ", "...", "\t", "x" * 40]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=300), st.integers(MIN_TOKENS, 200))
def test_the_budget_holds_and_characters_stay_whole(pieces: list[str], max_tokens: int) -> None:
    text = "".join(pieces)
    short, num_removed = excerpt(text, max_tokens, None)
    assert count_tokens(short, None) <= max_tokens
    if num_removed == 0:
        assert short == text
        return
    head, _, tail = short.partition(f"\n[... {num_removed} tokens left out ...]\n")
    assert text.startswith(head) and text.endswith(tail) and len(head) + len(tail) < len(text)
    assert num_removed == count_tokens(text, None) - count_tokens(head, None) - count_tokens(tail, None)
    for rest in (text[len(head) :], tail):
        assert not rest or not (unicodedata.combining(rest[0]) or rest[0] in "\u200d🏽")
    assert not head.endswith("\u200d")


def test_the_budget_holds_with_a_real_tokenizer(smollm2_tokenizer) -> None:
    text = "The north bridge 北桥 is 1,204 m long. " * 200
    for max_tokens in (MIN_TOKENS, 100, 999):
        short, num_removed = excerpt(text, max_tokens, smollm2_tokenizer)
        size = count_tokens(short, smollm2_tokenizer)
        assert 0.7 * max_tokens <= size <= max_tokens and MARK.findall(short) == [str(num_removed)]


def test_no_room_for_the_mark_is_an_error() -> None:
    with pytest.raises(ValueError, match="no room for its mark"):
        excerpt("word " * 100, 5, None)
