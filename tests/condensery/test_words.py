"""Words in any script."""

import pytest

from condensery.words import words_of

CASES = [
    ("The Quick fox's 3.5 km, snake_case", ["the", "quick", "fox", "s", "3.5", "km", "snake", "case"]),
    ("2018年琥珀镇有12345人", ["2018", "年", "琥", "珀", "镇", "有", "12345", "人"]),
    ("v1.2 in 3.11.2.", ["v1", "2", "in", "3.11.2"]),
    ("", []),
]


@pytest.mark.parametrize(("text", "words"), CASES)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words
