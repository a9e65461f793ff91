"""Head and tail of a text that is too long, with a visible count of what is missing between them."""

import re
import unicodedata
from functools import lru_cache

from condensery.tokens import Tokenizer, count_tokens

MIN_TOKENS = 32  # less holds the mark and nothing else
MARK = re.compile(r"\[\.\.\. (\d{1,9}) tokens left out \.\.\.\]")
MARK_TOKENS = 14  # about what the mark takes
JOINERS = ("\u200d", "\ufe0e", "\ufe0f")


def count(text: str, tokenizer: Tokenizer | None) -> int:
    """Tokens of a text; remembered, for the same texts are measured again while a request is made to fit."""
    return _count(text, tokenizer)  # type: ignore[arg-type]  # hashed by identity


@lru_cache(maxsize=1024)
def _count(text: str, tokenizer: Tokenizer | None) -> int:
    return count_tokens(text, tokenizer)


def excerpt(text: str, max_tokens: int, tokenizer: Tokenizer | None) -> tuple[str, int]:
    """(text of at most `max_tokens`, tokens removed). Raises ValueError when not even the mark fits."""
    num_tokens = count(text, tokenizer)
    if num_tokens <= max_tokens:
        return text, 0
    num_kept = len(text) * max(0, max_tokens - MARK_TOKENS) // num_tokens
    while num_kept >= 0:
        head = text[: _border(text, num_kept // 2)]
        tail = text[_border(text, len(text) - num_kept // 2) :]
        num_removed = num_tokens - count(head, tokenizer) - count(tail, tokenizer)
        marked = f"{head}\n[... {num_removed} tokens left out ...]\n{tail}"
        size = count(marked, tokenizer)
        if size <= max_tokens:
            return marked, num_removed
        num_kept = min(num_kept - 1, num_kept * max_tokens // size)
    raise ValueError(f"an excerpt of {max_tokens} tokens has no room for its mark; {MIN_TOKENS} is enough")


def _border(text: str, position: int) -> int:
    """The nearest position at or before this one that splits no character from its accents and joiners."""
    while 0 < position < len(text) and (_joins(text[position]) or text[position - 1] == "\u200d"):
        position -= 1
    return position


def _joins(character: str) -> bool:
    return (
        character in JOINERS
        or unicodedata.combining(character) > 0
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )
