"""Explorers behind an endpoint, in two protocols; translation into `Message` happens here, at the border.

`tools`: the `tool_calls` of the OpenAI API. `text`: what WebSailor-class models speak, `<think>..</think>`,
then `<tool_call>{json}</tool_call>` or `<answer>..</answer>`, with results in `<tool_response>` blocks.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import jinja2

from condensery.endpoint import Endpoint
from condensery.message import Message, ToolCall
from condensery.prompt import escape
from condensery.reply import Reply
from condensery.trajectory import Paradigm
from data_synthesis.importers.text_protocol import ANSWER, read_text_call
from data_synthesis.importers.turns import split_thinking
from data_synthesis.question import Question

Protocol = Literal["tools", "text"]
PROMPTS = Path(__file__).parent / "prompts"
UNREADABLE = (
    "A tool call in your last turn could not be read. Write it as one JSON object: "
    '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'
)
UNCLOSED = "Your last turn never closed its <think>. Think briefly, close it, then call a tool or answer."
NEITHER = "Your last turn held neither <tool_call> nor <answer>. Call a tool, or give the answer in <answer>."


def system_prompt(protocol: Protocol, schemas: list[dict], paradigm: Paradigm = "resum") -> str:
    """What the agent is told. In the text protocol it lists the tools, which no request carries there; under
    MEM1 it asks for a memory at each turn."""
    tools = [json.dumps(schema, ensure_ascii=False) for schema in schemas]
    text = (PROMPTS / f"explorer_{protocol}.jinja").read_text(encoding="utf-8")
    return (
        jinja2.Template(text, undefined=jinja2.StrictUndefined).render(tools=tools, paradigm=paradigm).strip()
    )


class EndpointExplorer:
    def __init__(self, endpoint: Endpoint, protocol: Protocol, schemas: list[dict]) -> None:
        self.endpoint, self.protocol, self.schemas = endpoint, protocol, schemas

    async def __call__(self, question: Question, messages: list[Message]) -> Reply:
        if self.protocol == "text":
            # The model must not write the tool's answer itself.
            reply = await self.endpoint.chat(to_text(messages), stop=["<tool_response>"])
            return read_text_turn(reply, len(messages))
        return read_turn(await self.endpoint.chat([to_chat(message) for message in messages], self.schemas))


def to_chat(message: Message) -> dict:
    """A tool's text is data: it cannot become a control token of the chat format."""
    chat = message.to_chat()
    return chat | {"content": escape(message.content)} if message.role == "tool" else chat


def read_turn(reply: Reply) -> Reply:
    """Servers without a reasoning parser leave the thinking in the text."""
    thinking, text = split_thinking(reply.message.content)
    if not thinking:
        return reply
    update = {"content": text, "reasoning_content": reply.message.reasoning_content or thinking}
    return replace(reply, message=reply.message.model_copy(update=update))


def to_text(messages: list[Message]) -> list[dict]:
    """The conversation with calls written as text; the results that follow a turn share one user turn."""
    chat: list[dict] = []
    was_result = False
    for message in messages:
        is_result = message.role == "tool"
        if is_result and was_result:
            chat[-1]["content"] += "\n" + _response(message)
        elif is_result:
            chat.append({"role": "user", "content": _response(message)})
        else:
            chat.append({"role": message.role, "content": _written(message)})
        was_result = is_result
    return chat


def _response(message: Message) -> str:
    return f"<tool_response>\n{escape(message.content)}\n</tool_response>"


def _written(message: Message) -> str:
    thinking = f"<think>\n{message.reasoning_content}\n</think>" if message.reasoning_content else ""
    calls = [f"<tool_call>\n{_call_json(call)}\n</tool_call>" for call in message.tool_calls]
    return "\n".join(part for part in [thinking, message.content, *calls] if part)


def _call_json(call: ToolCall) -> str:
    """The arguments stay the text that the model wrote."""
    return f'{{"name": {json.dumps(call.function.name)}, "arguments": {call.function.arguments}}}'


def read_text_turn(reply: Reply, num_messages: int) -> Reply:
    """Calls and thinking out of the text; `problem` says why a turn is neither a call nor an answer."""
    reply = read_turn(reply)
    if "<think>" in reply.message.content:  # a call quoted in a thought is no call
        return replace(reply, problem=UNCLOSED)
    notes: Counter[str] = Counter()
    message = read_text_call(reply.message, notes)
    for number, call in enumerate(message.tool_calls):
        call.id = call.id or f"call_{num_messages}_{number}"
    problem = None
    if notes["unparsable_call"] or "<tool_call>" in message.content:
        problem = UNREADABLE
    elif not message.tool_calls and not ANSWER.search(message.content) and reply.finish_reason != "length":
        problem = NEITHER
    return replace(reply, message=message, problem=problem)
