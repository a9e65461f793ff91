"""LangChain and LangGraph messages: `type` for the role, calls with `args`, as they are or in a dump."""

ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system", "function": "function"}


def is_langchain(turn: object) -> bool:
    return isinstance(turn, dict) and "role" not in turn and _kind(_inner(turn)) in ROLES


def read_langchain(turn: dict) -> dict:
    """The turn in the chat shape."""
    inner = _inner(turn)
    calls = inner.get("tool_calls") or []
    content = inner.get("content")
    if isinstance(content, list):  # the provider's own blocks repeat the calls
        content = [
            each for each in content if not (isinstance(each, dict) and each.get("type") == "tool_use")
        ]
    extra = inner.get("additional_kwargs") or {}
    return {
        "role": ROLES[_kind(inner)],
        "content": content,
        "reasoning_content": extra.get("reasoning_content"),
        "tool_call_id": inner.get("tool_call_id"),
        "tool_calls": [
            {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")} for call in calls
        ]
        or extra.get("tool_calls"),
    }


def _inner(turn: dict) -> dict:
    """`{"lc": 1, "id": [..., "AIMessage"], "kwargs": {...}}`, `{"type": "ai", "data": {...}}`, or itself."""
    if isinstance(turn.get("kwargs"), dict) and isinstance(turn.get("id"), list) and turn["id"]:
        kind = str(turn["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
        return turn["kwargs"] | {"type": kind}
    if isinstance(turn.get("data"), dict):
        return turn["data"] | {"type": turn.get("type")}
    return turn


def _kind(turn: dict) -> str:
    return str(turn.get("type")).removesuffix("MessageChunk").lower()
