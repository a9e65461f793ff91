"""Counting tokens of the request that is really sent: chat template, tools and system turn included.

Long runs grow by a few messages a turn; `RequestCounter` tokenizes only what is new. With no tokenizer at
hand `estimate_tokens` errs on the high side for prose, CJK too, where "characters / 4" is off by a factor of
2 to 6; logs full of digits and symbols may take a fifth more than it says.
"""

import re
from typing import Any, Protocol

from condensery.message import Message

CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer used here."""

    def encode(self, text: str, add_special_tokens: bool = ...) -> list[int]: ...

    def apply_chat_template(self, conversation: list[dict], **kwargs: Any) -> Any: ...


def estimate_tokens(text: str) -> int:
    """An estimate that leans high for prose: one token per CJK character, one per 3 other characters."""
    num_cjk = len(CJK.findall(text))
    return num_cjk + (len(text) - num_cjk + 2) // 3


def count_tokens(text: str, tokenizer: Tokenizer | None) -> int:
    if tokenizer is None:
        return estimate_tokens(text)
    return len(tokenizer.encode(text, add_special_tokens=False))


class RequestCounter:
    """Token counts of growing requests, tokenizing each new piece once.

    Exact as long as the chat template renders a longer conversation as a continuation of the shorter one;
    where it rewrites earlier turns (some drop old reasoning), the whole request is counted anew.
    """

    def __init__(self, tokenizer: Tokenizer | None, tools: list[dict] | None = None) -> None:
        self.tokenizer = tokenizer
        self.tools = tools
        self.text = ""
        self.num_tokens = 0

    def count(self, messages: list[Message]) -> int:
        text = self._render(messages)
        if self.text and text.startswith(self.text):
            self.num_tokens += count_tokens(text[len(self.text) :], self.tokenizer)
        else:
            self.num_tokens = count_tokens(text, self.tokenizer)
        self.text = text
        return self.num_tokens

    def _render(self, messages: list[Message]) -> str:
        chat = [message.to_chat() for message in messages]
        if self.tokenizer is None:
            tools = f"{self.tools}\n" if self.tools else ""
            return tools + "".join(f"<|{turn['role']}|>{turn}\n" for turn in chat)
        return self.tokenizer.apply_chat_template(
            chat, tools=self.tools, tokenize=False, add_generation_prompt=False
        )
