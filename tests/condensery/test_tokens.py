"""Token counts: exact and incremental with a tokenizer, never too low by much without one."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condensery.message import Message
from condensery.tokens import RequestCounter, count_tokens, estimate_tokens
from condensery.triggers import compaction_due, token_budget


class WordTokenizer:
    """A word a token; a chat template that may drop earlier reasoning; counts the words it is given."""

    def __init__(self, drops_reasoning: bool = False) -> None:
        self.drops_reasoning = drops_reasoning
        self.num_encoded = 0

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        self.num_encoded += len(text.split())
        return [0] * len(text.split())

    def apply_chat_template(self, conversation: list[dict], **settings: object) -> str:
        text = f"tools {settings['tools']}\n" if settings["tools"] else ""
        for number, turn in enumerate(conversation):
            is_last = number == len(conversation) - 1
            thought = turn.get("reasoning_content", "") if is_last or not self.drops_reasoning else ""
            text += f"<{turn['role']}> {thought} {turn['content']} </>\n"
        return text


def conversation(num_turns: int) -> list[Message]:
    rng = random.Random(num_turns)
    return [
        Message(
            role="assistant",
            content="word " * rng.randrange(1, 50),
            reasoning_content="thought " * rng.randrange(3),
        )
        for _ in range(num_turns)
    ]


@pytest.mark.parametrize("drops_reasoning", [False, True])
def test_incremental_count_equals_a_count_from_scratch(drops_reasoning: bool) -> None:
    messages = conversation(30)
    tools = [{"name": "search"}]
    counter = RequestCounter(WordTokenizer(drops_reasoning), tools)
    for end in [*range(1, 31), 10, 11]:
        exact = RequestCounter(WordTokenizer(drops_reasoning), tools).count(messages[:end])
        assert counter.count(messages[:end]) == exact


def test_only_what_is_new_is_tokenized() -> None:
    messages, tokenizer = conversation(40), WordTokenizer()
    counter = RequestCounter(tokenizer)
    for end in range(1, 41):
        counter.count(messages[:end])
    assert tokenizer.num_encoded == counter.num_tokens


def test_tools_count_with_and_without_a_tokenizer() -> None:
    tools = [{"type": "function", "function": {"name": "search", "description": "word " * 100}}]
    for tokenizer in (WordTokenizer(), None):
        plain = RequestCounter(tokenizer).count(conversation(2))
        assert RequestCounter(tokenizer, tools).count(conversation(2)) >= plain + 100


def test_estimate_is_not_too_low_for_any_script() -> None:
    assert estimate_tokens("磨坊建于一八四三年") == 9
    assert estimate_tokens("The mill was built in 1843.") >= 7
    assert estimate_tokens("") == 0


@given(st.text())
def test_estimate_holds_its_floor_for_cjk(text: str) -> None:
    num_cjk = sum("\u4e00" <= character <= "\u9fff" for character in text)
    assert estimate_tokens(text) >= 0.6 * num_cjk
    assert count_tokens(text, None) == estimate_tokens(text)


def test_triggers_follow_resum() -> None:
    assert token_budget(32 * 1024) == 28591
    assert compaction_due(28591, 28591, 1) and not compaction_due(28590, 28591, 99)
    assert compaction_due(0, 28591, 5, every_rounds=5) and not compaction_due(0, 28591, 4, every_rounds=5)
