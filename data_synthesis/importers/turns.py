"""One logged turn, of any dialect, as a Message: roles, content and calls in one form.

What cannot be kept as it is, is counted by name in `Notes`; what has no meaning here raises ValueError.
"""

import json
from collections import Counter

from condensery.files.jsonl import parse_json
from condensery.message import FunctionCall, Message, Role, ToolCall

ROLES: dict[str, Role] = {
    **dict.fromkeys(["system", "developer"], "system"),
    # A result in OpenSeeker's text is told by its tags, like one in a user turn.
    **dict.fromkeys(["user", "human", "tool_output"], "user"),
    **dict.fromkeys(
        [
            *("assistant", "ai", "gpt", "model", "agent", "bot", "chatgpt", "function_call"),
            *("reasoning", "tool_call", "answer"),  # OpenSeeker: a turn for each part of a reply
        ],
        "assistant",
    ),
    **dict.fromkeys(
        ["tool", "function", "observation", "ipython", "tool_response", "tool_result", "toolresult"], "tool"
    ),
}
TEXT_PARTS = {"text", "input_text", "output_text"}
THINKING_PARTS = {"thinking", "reasoning"}
IMAGE_PARTS = {"image", "image_url", "input_image"}

# What an importer changed or could not read, by name, per trajectory; added up in the run's report.
Notes = Counter[str]


def read_turns(turns: object, notes: Notes) -> list[Message]:
    """All turns of a conversation (a list, or one stored as a JSON string), calls and results paired.

    Raises ValueError naming the turn and what is wrong with it.
    """
    if isinstance(turns, str):
        turns = parse_json(turns)
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"expected a list of turns, got {_show(turns)}")
    messages = []
    for number, turn in enumerate(turns, start=1):
        try:
            messages.append(read_turn(turn, notes))
        except (ValueError, TypeError) as error:
            raise ValueError(f"turn {number}: {error}") from error
    return pair_results(messages, notes)


def read_turn(turn: object, notes: Notes) -> Message:
    if not isinstance(turn, dict):
        raise ValueError(f"expected an object, got {_show(turn)}")
    content = None if turn.get("from") == "function_call" else turn.get("content", turn.get("value"))
    text, thinking = read_content(content, notes)
    role = read_role(turn.get("role", turn.get("from")))
    tagged, text = split_thinking(text) if role == "assistant" else ("", text)
    given = turn.get("reasoning_content") or turn.get("reasoning")
    reasoning = "\n".join(filter(None, [given if isinstance(given, str) else "", thinking, tagged]))
    # SWE-agent keeps a list with one id.
    ids = turn.get("tool_call_ids") or [None]
    return Message(
        role=role,
        content=text,
        tool_calls=read_calls(turn),
        tool_call_id=read_id(turn.get("tool_call_id", ids[0])) or None,
        reasoning_content=reasoning or None,
    )


def split_thinking(content: str) -> tuple[str, str]:
    """(thinking, what follows). The opening tag may be missing: some chat templates put it in the prompt."""
    thinking, closed, rest = content.rpartition("</think>")
    return (thinking.strip().removeprefix("<think>").strip(), rest.strip()) if closed else ("", content)


def read_role(role: object) -> Role:
    if not isinstance(role, str) or role.lower() not in ROLES:
        raise ValueError(f"unknown role {role!r}; known are {', '.join(ROLES)}")
    return ROLES[role.lower()]


def read_content(content: object, notes: Notes) -> tuple[str, str]:
    """(text, thinking) of null, a string, an object, or a list of parts."""
    if content is None:
        return "", ""
    if isinstance(content, str):
        return content, ""
    parts: list = content if isinstance(content, list) else [content]
    texts, thoughts = [], []
    for part in parts:
        part = {"type": "text", "text": part} if isinstance(part, str) else part
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in TEXT_PARTS:
            texts.append(part.get("text") or "")
        elif kind in THINKING_PARTS:
            thoughts.append(part.get("thinking") or part.get("reasoning") or part.get("text") or "")
        elif kind in IMAGE_PARTS:
            notes["image"] += 1
            texts.append("[image]")
        else:
            raise ValueError(f"unknown content part {_show(part)}")
    return "\n".join(texts), "\n".join(thoughts)


def read_calls(turn: dict) -> list[ToolCall]:
    """The calls of a turn, today's or the older `function_call`; `pair_results` fills missing ids."""
    calls = list(turn.get("tool_calls") or [])
    if turn.get("function_call"):
        calls.append({"function": turn["function_call"]})
    if turn.get("from") == "function_call":  # ShareGPT: the call is the text of the turn
        calls.append(parse_json(turn["value"]))
    return [read_call(call) for call in calls]


def read_call(call: object) -> ToolCall:
    function = call.get("function", call) if isinstance(call, dict) else None
    if isinstance(call, dict) and isinstance(function, str):  # Inspect: the name alone, arguments beside it
        function = call | {"name": function}
    if (
        not isinstance(call, dict)
        or not isinstance(function, dict)
        or not isinstance(function.get("name"), str)
    ):
        raise ValueError(f"a tool call without a name: {_show(call)}")
    arguments = function.get("arguments", function.get("parameters"))
    return ToolCall(
        id=read_id(call.get("id")),
        function=FunctionCall(name=function["name"], arguments=as_json(arguments)),
    )


def read_id(value: object) -> str:
    """Some agents number their calls; empty where there is no id."""
    return "" if value is None else str(value)


def as_json(arguments: object) -> str:
    """Arguments as the JSON text the model wrote; the text itself where the log kept it."""
    if isinstance(arguments, str):
        return arguments or "{}"
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def pair_results(messages: list[Message], notes: Notes) -> list[Message]:
    """Every result names an open call, and every call that the run went on from is answered.

    A result without id answers the oldest open call of the last turn that called. A result that no call asked
    for becomes a user turn; a call that never got a result becomes text, for it would keep the history from
    ever being cut. The calls of a run that ended on them stay open.
    """
    open_calls: list[tuple[int, ToolCall]] = []
    last_caller = -1
    for position, message in enumerate(messages):
        if message.role == "tool":
            answered = _call_answered_by(message, open_calls, last_caller)
            if answered:
                message.tool_call_id = answered[1].id
                open_calls.remove(answered)
            else:
                notes["result_without_call"] += 1
                message.role, message.tool_call_id = "user", None
        if message.tool_calls:
            last_caller = position
        elif message.role == "user":
            last_caller = -1
        for number, call in enumerate(message.tool_calls):
            call.id = call.id or f"call_{position}_{number}"
            open_calls.append((position, call))
    for position, call in open_calls:
        # Calls that end the run may stay open: nothing after them is ever cut.
        if any(later.role in ("user", "assistant") for later in messages[position + 1 :]):
            notes["call_without_result"] += 1
            _write_out(messages[position], call)
    return messages


def _call_answered_by(
    message: Message, open_calls: list[tuple[int, ToolCall]], last_caller: int
) -> tuple[int, ToolCall] | None:
    for position, call in open_calls:
        # Never a call of an earlier turn: one missing result would shift all that follow.
        if message.tool_call_id == call.id or (not message.tool_call_id and position == last_caller):
            return position, call
    return None


def _write_out(message: Message, call: ToolCall) -> None:
    message.tool_calls.remove(call)
    message.content = f"{message.content}\n{call.function.name}({call.function.arguments})".strip()


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else text[:117] + "..."
