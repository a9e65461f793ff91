"""Codex sessions (`rollout-*.jsonl`): items of the Responses API, one on each line."""

from data_synthesis.importers.envelope import BadRow, Row
from data_synthesis.importers.reset_turn import reset_turn
from data_synthesis.importers.turns import Notes

KINDS = ("session_meta", "response_item", "compacted", "turn_context", "event_msg")

CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")


def is_item(value: object) -> bool:
    return isinstance(value, dict) and value.get("type") in KINDS and isinstance(value.get("payload"), dict)


def fold_rollout(rows: list[Row | BadRow], notes: Notes) -> list[Row | BadRow]:
    """The rows with all items folded into one conversation a session; other rows stay what they are.

    A compaction whose summary is encrypted starts a run of its own, with the items that replaced the history:
    from there on the model saw nothing else.
    """
    items = [row for row in rows if isinstance(row, Row) and is_item(row.value)]
    if not items:
        return rows
    folded: list[Row | BadRow] = [row for row in rows if not (isinstance(row, Row) and is_item(row.value))]
    line, turns, session = items[0].line, list[dict](), None
    for row in items:
        kind, payload = row.value["type"], row.value["payload"]
        replaced = payload.get("replacement_history")
        if kind == "compacted" and payload.get("message"):
            turns.append(reset_turn(payload["message"]))
        elif kind == "response_item":
            _add(payload, turns, notes)
        else:
            notes["compaction_without_summary" if kind == "compacted" else "event_without_turn"] += 1
            is_replaced = kind == "compacted" and isinstance(replaced, list)
            # A session that was forked repeats the first lines of the other before any turn.
            is_other = kind == "session_meta" and session not in (None, payload.get("id"))
            session = payload.get("id") if kind == "session_meta" else session
            if turns and (is_replaced or is_other):
                folded.append(Row(line, {"messages": turns}))
                line, turns = row.line, []
            for item in replaced if is_replaced else []:
                _add(item if isinstance(item, dict) else {"type": item}, turns, notes)
    return [*folded, Row(line, {"messages": turns})]


def _add(item: dict, turns: list[dict], notes: Notes) -> None:
    kind = item.get("type")
    if kind == "message":
        parts = item.get("content")
        texts = [_plain(part) for part in parts] if isinstance(parts, list) else parts
        turns.append({"role": _role(item.get("role"), texts), "content": texts})
    elif kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", item.get("input"))
        call = {"id": item.get("call_id"), "name": item.get("name"), "arguments": arguments}
        if turns and turns[-1]["role"] == "assistant":  # text and calls of one reply are items of their own
            turns[-1].setdefault("tool_calls", []).append(call)
            notes["item_of_one_reply"] += 1
        else:
            turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        output = output.get("content") if isinstance(output, dict) else output
        turns.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
    else:  # reasoning is encrypted or a headline; searches of the service have no result
        notes[f"item_{kind}"] += 1


def _role(role: object, content: object) -> object:
    """Codex tells the model where it is in user turns, before the user's own: they are not the task."""
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return "system" if role == "user" and isinstance(text, str) and text.startswith(CONTEXT) else role


def _plain(part: object) -> object:
    kind = part.get("type") if isinstance(part, dict) else None
    return (
        part | {"type": "text"} if isinstance(part, dict) and kind in ("input_text", "output_text") else part
    )
