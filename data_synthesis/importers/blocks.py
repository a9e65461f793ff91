"""Anthropic messages: calls, results and thinking are blocks inside the content of a turn."""

RESULT, CALL = "tool_result", "tool_use"


def has_blocks(turns: object) -> bool:
    return isinstance(turns, list) and any(_kinds(turn) & {RESULT, CALL} for turn in turns)


def split_blocks(turns: list) -> list:
    """The turns in the chat shape: results become turns of their own, calls leave the content."""
    return [each for turn in turns for each in (_split(turn) if _kinds(turn) & {RESULT, CALL} else [turn])]


def _kinds(turn: object) -> set:
    content = turn.get("content") if isinstance(turn, dict) else None
    parts = content if isinstance(content, list) else []
    return {part["type"] for part in parts if isinstance(part, dict) and isinstance(part.get("type"), str)}


def _split(turn: dict) -> list[dict]:
    blocks = [
        block if isinstance(block, dict) else {"type": None, "text": block} for block in turn["content"]
    ]
    results = [
        {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": block.get("content")}
        for block in blocks
        if block.get("type") == RESULT
    ]
    calls = [
        {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        for block in blocks
        if block.get("type") == CALL
    ]
    rest = [block for block in blocks if block.get("type") not in (RESULT, CALL)]
    own = [turn | {"content": rest, "tool_calls": calls}] if rest or calls or not results else []
    return results + own
