"""Rendering a pair with the student's chat template, and which of its tokens are supervised.

The prompt's tokens are exactly those a server computes for the same messages. The target is the thought that
the setting `thinking` asks for, the answer, and the stop token, less what the template has written of the
thought at the end of the prompt; it is tokenized on its own, as a model emits it, so no token spans the
border. What this rests on is checked: the template must continue the prompt's text with that very answer.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from condensery.thinking import Thinking

IGNORED = -100  # the label of a token that carries no loss, in PyTorch's cross-entropy and in TRL
Chat = list[dict[str, Any]]
# What a template may write for the model at the end of the prompt: a thought, open or closed already.
OPENED = re.compile(r"<think>\s*(</think>\s*)?\Z")
# The switches of hybrid templates by preference; others ignore them.
SWITCHES: dict[Thinking, tuple[bool | None, ...]] = {
    "keep": (None, True),
    "empty": (False, None),
    "none": (None, False),
}


class ChatTemplateError(ValueError):
    """The chat template does not allow to supervise this row; `reason` says why, in a word."""

    def __init__(
        self, reason: Literal["content", "prefix", "stop_token", "mask", "thinking"], detail: str
    ) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class RenderedPair:
    """`input_ids` = prompt and completion, the completion up to and including the stop token."""

    input_ids: list[int]
    num_prompt_tokens: int

    @property
    def labels(self) -> list[int]:
        """-100 on the prompt, the token itself on the completion."""
        return [IGNORED] * self.num_prompt_tokens + self.completion_ids

    @property
    def prompt_ids(self) -> list[int]:
        return self.input_ids[: self.num_prompt_tokens]

    @property
    def completion_ids(self) -> list[int]:
        return self.input_ids[self.num_prompt_tokens :]


def render_text(
    tokenizer: PreTrainedTokenizerBase, chat: Chat, enable_thinking: bool | None, add_generation_prompt: bool
) -> str:
    """`enable_thinking` is the switch of hybrid models; None leaves the template's default."""
    switch: dict[str, Any] = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    return str(
        tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=add_generation_prompt, **switch
        )
    )


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: Chat, enable_thinking: bool | None = None
) -> list[int]:
    """The tokens that a server feeds the model for these messages.

    The template has written every special token itself, a beginning-of-sequence token too.
    """
    text = render_text(tokenizer, prompt, enable_thinking, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)


def thinking_switch(tokenizer: PreTrainedTokenizerBase, thinking: Thinking) -> bool | None:
    """The `enable_thinking` under which a server's prompt is the one trained on.

    Raises ChatTemplateError where the template forces a thought that the setting does not write.
    """
    probe = [{"role": "user", "content": "Hello"}]
    closes = False
    for switch in SWITCHES[thinking]:
        opened = OPENED.search(render_text(tokenizer, probe, switch, add_generation_prompt=True))
        if opened is None or thinking == "empty" or (thinking == "keep" and not opened[1]):
            return switch
        closes = bool(opened[1])
    raise ChatTemplateError(
        "thinking",
        f"the chat template of {tokenizer.name_or_path} {'writes an empty' if closes else 'opens a'} thought "
        f"at the end of every prompt, with which --thinking {thinking} cannot be; take "
        f"{'empty' if closes else 'keep or empty'}",
    )


def render_pair(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Chat,
    completion: Chat,
    thinking: Thinking = "none",
    reasoning: str = "",
) -> RenderedPair:
    """Tokens of a pair. Raises ChatTemplateError where the template forbids supervision."""
    switch = thinking_switch(tokenizer, thinking)
    before = render_text(tokenizer, prompt, switch, add_generation_prompt=True)
    answer = completion[-1]["content"].strip()
    _check_continues(tokenizer, prompt, answer, before, switch)
    prefix = tokenizer.encode(before, add_special_tokens=False)
    # Two calls: in one, a token could span the border, and the server would feed another prompt.
    text = _rest_of_thought(before, thinking, reasoning) + answer + str(tokenizer.eos_token)
    pair = RenderedPair(prefix + tokenizer.encode(text, add_special_tokens=False), len(prefix))
    if (learned := supervised_text(tokenizer, pair)) != text:
        raise ChatTemplateError("mask", f"the tokens read {learned[-80:]!r}, the text is {text[-80:]!r}")
    return pair


def _check_continues(
    tokenizer: PreTrainedTokenizerBase, prompt: Chat, answer: str, before: str, switch: bool | None
) -> None:
    """The template itself must write all messages, the answer behind them, then the stop token."""
    for number, message in enumerate(prompt, start=1):
        if message["content"].strip() not in before:
            raise ChatTemplateError(
                "content",
                f"the chat template of {tokenizer.name_or_path} drops or changes message {number}, of the "
                f"role {message['role']}",
            )
    turn = {"role": "assistant", "content": answer}
    whole = render_text(tokenizer, [*prompt, turn], switch, add_generation_prompt=False)
    start = OPENED.sub("", before)
    if not whole.startswith(start):
        raise ChatTemplateError(
            "prefix",
            f"the chat template of {tokenizer.name_or_path} does not continue the prompt, which ends "
            f"{start[-60:]!r}",
        )
    _, found, after = whole[len(start) :].partition(answer)
    if not found:
        raise ChatTemplateError(
            "mask", f"the chat template writes {whole[-80:]!r}, the text is {answer[-80:]!r}"
        )
    if not after.startswith(str(tokenizer.eos_token)):
        raise ChatTemplateError(
            "stop_token", f"the chat template does not end a turn with {tokenizer.eos_token!r}"
        )


def _rest_of_thought(before: str, thinking: Thinking, reasoning: str) -> str:
    """The thought to learn, less what the template has written of it, in the form of Qwen's templates."""
    opened = OPENED.search(before)
    if thinking == "none" or (opened and opened[1]):
        return ""
    closing = (f"{reasoning.strip()}\n" if thinking == "keep" else "\n") + "</think>\n\n"
    if opened is None:
        return "<think>\n" + closing
    return closing if opened[0].endswith("\n") else "\n" + closing


def supervised_text(tokenizer: PreTrainedTokenizerBase, pair: RenderedPair) -> str:
    """What the model learns to write for this pair, stop token included."""
    return str(tokenizer.decode(pair.completion_ids, clean_up_tokenization_spaces=False))
