"""Mechanical baselines: what an agent keeps without any summarizer, cut to the same number of tokens."""

from condensery.compaction import Compaction
from condensery.prompt import render_history
from condensery.tokens import Tokenizer, count_tokens

PLACEHOLDER = "[old tool result removed]"


def keep_newest(compaction: Compaction, max_tokens: int, tokenizer: Tokenizer | None) -> str:
    """Recent truncation: the last `max_tokens` tokens of what the agent saw (last summary, then history)."""
    text = "\n".join([compaction.last_summary or "", render_history(compaction.expired)])
    return newest(text, max_tokens, tokenizer)


def observation_masking(compaction: Compaction, max_tokens: int, tokenizer: Tokenizer | None) -> str:
    """All turns stay, but only the newest tool results keep their text, as many whole ones as fit.

    The thoughts alone may exceed the budget; then the newest part of them remains, as in any window.
    """
    messages = list(compaction.expired)
    tool_positions = [i for i, message in enumerate(messages) if message.role == "tool"]
    masked = list(messages)
    for i in tool_positions:
        masked[i] = messages[i].model_copy(update={"content": PLACEHOLDER})
    # From the newest back, as an agent forgets.
    for i in reversed(tool_positions):
        trial = [*masked[:i], messages[i], *masked[i + 1 :]]
        if count_tokens(render_history(trial), tokenizer) > max_tokens:
            break
        masked = trial
    return newest(render_history(masked), max_tokens, tokenizer)


def newest(text: str, max_tokens: int, tokenizer: Tokenizer | None) -> str:
    """The longest end of `text`, from a word on, of at most `max_tokens` tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if count_tokens(text[middle:], tokenizer) <= max_tokens:
            high = middle
        else:
            low = middle + 1
    return text[low:] if low == 0 else text[low:].partition(" ")[2] or text[low:]
