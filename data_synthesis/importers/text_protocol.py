"""Calls and results written as text: `<tool_call>` JSON, `<function=...>`, `<tool_response>`.

Thoughts are out of the text by now: models quote calls while they think, and those are none.
"""

import json
import re

from condensery.files.jsonl import parse_json
from condensery.message import FunctionCall, Message, ToolCall
from data_synthesis.importers.turns import Notes, read_call

TOOL_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
EMPTY_CALL = re.compile(r"<tool_call>\s*</tool_call>")
FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)</function>", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([\w.-]+)>(.*?)</parameter>", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)


def read_text_call(message: Message, notes: Notes) -> Message:
    """An assistant turn with its calls taken out of the text; what cannot be read stays and is counted."""
    calls: list[ToolCall] = []

    def take(match: re.Match[str]) -> str:
        call = _function_call(match) if match.re is FUNCTION else _json_call(match[1])
        if call is None:
            notes["unparsable_call"] += 1
            return match[0]
        calls.append(call)
        return ""

    # <function=...> first: where a model wraps it in <tool_call>, the wrapper is empty afterwards.
    closed, unclosed = _up_to_last(message.content, "</function>")
    rest = EMPTY_CALL.sub("", FUNCTION.sub(take, closed) + unclosed)
    rest = TOOL_CALL.sub(take, rest)
    return message.model_copy(update={"content": rest.strip(), "tool_calls": [*message.tool_calls, *calls]})


def _up_to_last(text: str, tag: str) -> tuple[str, str]:
    """(text up to and with the last `tag`, the rest): each opening tag in the rest would be tried in vain."""
    end = text.rfind(tag) + len(tag)
    return (text[:end], text[end:]) if tag in text else ("", text)


def _json_call(text: str) -> ToolCall | None:
    try:
        return read_call(parse_json(text, strict=False))
    except ValueError:  # not JSON, or no name in it
        return None


def _function_call(match: re.Match[str]) -> ToolCall:
    closed, _ = _up_to_last(match[2], "</parameter>")
    values = {name: value.strip("\n") for name, value in PARAMETER.findall(closed)}
    return ToolCall(
        id="", function=FunctionCall(name=match[1], arguments=json.dumps(values, ensure_ascii=False))
    )


def read_responses(message: Message, num_calls: int, notes: Notes) -> list[Message]:
    """The results in a user turn that holds nothing but `<tool_response>` blocks, one tool turn for each.

    After a single call the turn is one result, so that a page which quotes the tags stays whole.
    """
    text = message.content.strip()
    blocks = [text.removeprefix("<tool_response>").removesuffix("</tool_response>")]
    if num_calls > 1:
        blocks = RESPONSE.findall(_up_to_last(text, "</tool_response>")[0])
        notes["split_results"] += len(blocks) - 1
    return [message.model_copy(update={"role": "tool", "content": block.strip()}) for block in blocks]


def is_response(content: str) -> bool:
    text = content.strip()
    return text.startswith("<tool_response>") and text.endswith("</tool_response>")


def last_answer(messages: list[Message]) -> str | None:
    """What stands in the last turn's `<answer>`."""
    found = ANSWER.findall(messages[-1].content)
    return found[-1].strip() or None if found else None
