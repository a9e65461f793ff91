"""Rendering a pair with the student's chat template, and which of its tokens are supervised.

The prompt's tokens are exactly those a server computes for the same messages. The rest of the rendered text
is tokenized on its own, as a model emits it, so no token spans the border and the training prefix equals the
serving prompt whatever the template and the vocabulary. What this rests on is checked: the text of the
prompt must be a prefix of the text of the pair.
"""

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

IGNORED = -100  # the label of a token that carries no loss, in PyTorch's cross-entropy and in TRL
Chat = list[dict[str, Any]]


class PrefixError(ValueError):
    """The chat template renders the prompt differently once an answer follows."""


class StopTokenError(ValueError):
    """The rendered completion does not end its turn with a stop token."""


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


def render_pair(
    tokenizer: PreTrainedTokenizerBase, prompt: Chat, completion: Chat, enable_thinking: bool | None = None
) -> RenderedPair:
    """Tokens of a pair. Raises PrefixError or StopTokenError where the template forbids supervision."""
    before = render_text(tokenizer, prompt, enable_thinking, add_generation_prompt=True)
    whole = render_text(tokenizer, prompt + completion, enable_thinking, add_generation_prompt=False)
    if not whole.startswith(before):
        raise PrefixError(f"the chat template does not continue the prompt, which ends {before[-60:]!r}")
    # Two calls: in one, a token could span the border, and the server would feed another prompt.
    prefix = tokenizer.encode(before, add_special_tokens=False)
    answer = tokenizer.encode(whole[len(before) :], add_special_tokens=False)
    return RenderedPair(prefix + answer[: _end(tokenizer, answer)], len(prefix))


def _end(tokenizer: PreTrainedTokenizerBase, answer: list[int]) -> int:
    """The position after the stop token; the line break that templates put behind it is not learned."""
    if tokenizer.eos_token_id not in answer:
        raise StopTokenError(f"the chat template does not end a turn with {tokenizer.eos_token!r}")
    return len(answer) - answer[::-1].index(tokenizer.eos_token_id)


def supervised_text(tokenizer: PreTrainedTokenizerBase, pair: RenderedPair) -> str:
    """What the model learns to write for this pair, stop token included."""
    return str(tokenizer.decode(pair.completion_ids, clean_up_tokenization_spaces=False))
