"""Make a request fit its budget by shortening its longest pieces, each marked and counted, none dropped."""

import json

from condensery.compaction import Compaction
from condensery.files.jsonl import parse_json
from condensery.message import Message, ToolCall
from condensery.prompt import escape, render_prompt
from condensery.tokens import Tokenizer, count_tokens
from data_synthesis.excerpt import MIN_TOKENS, count, excerpt

THOUGHT_SHARE = 0.5  # a thought gets half the room of a result: facts stand in results
FRAME_TOKENS = 16  # what a chat template puts around a request, where there is no tokenizer to tell


class RowTooLong(ValueError):
    """The request stays over its budget, whatever is shortened."""


def request_tokens(compaction: Compaction, template: str, tokenizer: Tokenizer | None) -> int:
    """Tokens of the rendered request, chat template included; not remembered, for each is another text."""
    prompt: list[dict] = list(render_prompt(compaction, template))
    if tokenizer is None:
        return count_tokens(prompt[0]["content"], None) + FRAME_TOKENS
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    return count_tokens(text, tokenizer)


def fit(
    compaction: Compaction, template: str, max_tokens: int, tokenizer: Tokenizer | None
) -> tuple[list[Message], int]:
    """(the expired messages, shortened so that the request fits; tokens removed from them).

    Raises RowTooLong when no piece can be cut further.
    """
    over = request_tokens(compaction, template, tokenizer) - max_tokens
    messages, num_removed = compaction.expired, 0
    sizes = [size for message in messages for size in _sizes(message, tokenizer)]
    room = sum(sizes)
    # Excerpts come out a little under or over their level (marks, escapes), hence measured and tried again.
    while over > 0:
        room -= over
        level = _water_level(sizes, room)
        if level < MIN_TOKENS:
            raise RowTooLong(
                f"{len(compaction.expired)} messages do not fit {max_tokens} tokens even as excerpts; raise "
                "--max_row_tokens or lower --window_tokens"
            )
        shortened = [_shorten(message, level, tokenizer) for message in compaction.expired]
        messages, num_removed = (
            [message for message, _ in shortened],
            sum(removed for _, removed in shortened),
        )
        fitted = compaction.model_copy(update={"expired": messages})
        over = request_tokens(fitted, template, tokenizer) - max_tokens
    return messages, num_removed


def _sizes(message: Message, tokenizer: Tokenizer | None) -> list[float]:
    """Tokens of each piece as rendered, a thought counted so that one level serves both kinds."""
    pieces = [message.content, *(call.function.arguments for call in message.tool_calls)]
    sizes: list[float] = [count(escape(piece), tokenizer) for piece in pieces]
    return [*sizes, count(escape(message.reasoning_content or ""), tokenizer) / THOUGHT_SHARE]


def _water_level(sizes: list[float], room: float) -> int:
    """The level L with sum(min(size, L)) = room: long pieces are cut to it, short ones stay whole."""
    left = sorted(sizes)
    while left and left[0] * len(left) <= room:
        room -= left.pop(0)
    return int(room / len(left)) if left else int(max(sizes, default=0))


def _shorten(message: Message, level: int, tokenizer: Tokenizer | None) -> tuple[Message, int]:
    content, num_removed = excerpt(message.content, level, tokenizer)
    room = max(MIN_TOKENS, int(level * THOUGHT_SHARE))
    thought, num_thought = excerpt(message.reasoning_content or "", room, tokenizer)
    calls = [_shorten_call(call, level, tokenizer) for call in message.tool_calls]
    shortened = message.model_copy(
        update={
            "content": content,
            "reasoning_content": thought or None,
            "tool_calls": [call for call, _ in calls],
        }
    )
    return shortened, num_removed + num_thought + sum(removed for _, removed in calls)


def _shorten_call(call: ToolCall, level: int, tokenizer: Tokenizer | None) -> tuple[ToolCall, int]:
    """Arguments stay JSON: their text values are shortened, not the document."""
    if count(call.function.arguments, tokenizer) <= level:
        return call, 0
    arguments, num_removed = excerpt(call.function.arguments, level, tokenizer)
    try:
        values = parse_json(call.function.arguments)
    except ValueError:  # text as the model wrote it, which never was JSON
        values = None
    if isinstance(values, dict):
        share = max(MIN_TOKENS, level // (len(values) + 1))
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        short = {key: excerpt(text, share, tokenizer)[0] for key, text in texts.items()}
        kept = {key: short[key] if short[key] != texts[key] else value for key, value in values.items()}
        arguments = json.dumps(kept, ensure_ascii=False)
    function = call.function.model_copy(update={"arguments": arguments})
    return call.model_copy(update={"function": function}), num_removed
