"""Words of text in any script, for whatever compares texts by the words they share."""

import re

from condensery.tokens import CJK

# A decimal number is one word; a CJK character is one, also right behind a digit or a Latin letter.
WORD = re.compile(rf"{CJK.pattern}|\d+(?:\.\d+)+|[^\W_{CJK.pattern[1:-1]}]+")


def words_of(text: str) -> list[str]:
    """Words in lower case; of CJK text, which has no spaces, the characters."""
    return WORD.findall(text.lower())
