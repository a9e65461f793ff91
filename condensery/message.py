"""One chat turn in the OpenAI chat shape: the only message type in the code.

Importers translate into it at the border. Call arguments stay the JSON text that the model wrote, so that two
calls with different keys come back from any file exactly as they went in.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

Role = Literal["system", "user", "assistant", "tool"]
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def whole_characters(text: str) -> str:
    """Halves of characters (a log cut inside an emoji) become U+FFFD: no tokenizer or encoder takes them."""
    return LONE_SURROGATE.sub("\ufffd", text)


Whole = Annotated[str, AfterValidator(whole_characters)]
# A turn that only calls tools has `content: null` in most logs; the word "None" must never reach a prompt.
Text = Annotated[Whole, BeforeValidator(lambda value: "" if value is None else value)]


class FunctionCall(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Whole
    arguments: Whole = "{}"


class ToolCall(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: Whole
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(BaseModel):
    """A turn of `role`; `tool_call_id` names the call that a tool turn answers."""

    model_config = ConfigDict(extra="forbid")
    role: Role
    content: Text = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: Whole | None = None
    reasoning_content: Whole | None = None

    def to_chat(self) -> dict:
        """The dict that chat templates and endpoints take: absent keys instead of empty ones."""
        return self.model_dump(exclude_none=True, exclude=None if self.tool_calls else {"tool_calls"})


def closed_positions(messages: list[Message]) -> list[int]:
    """Positions p where `messages[:p]` answers every call it makes and `messages[p:]` answers only its own.

    Histories may be cut at these positions and nowhere else. Call ids may be reused within a run, so calls
    are counted, not looked up. A call that is never answered (the run ended there) stays open to the end.
    """
    positions = [0]
    open_ids: list[str] = []
    for position, message in enumerate(messages, start=1):
        # Once per result: an id that is used twice needs two answers.
        if message.role == "tool" and message.tool_call_id in open_ids:
            open_ids.remove(message.tool_call_id)
        open_ids += [call.id for call in message.tool_calls]
        if not open_ids:
            positions.append(position)
    return positions
