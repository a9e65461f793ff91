"""Claude Code sessions: a file of events, folded into one conversation for each run in it.

A sub-agent (sidechain) is a run of its own, and so is a branch that was left; a recorded compaction becomes
a reset turn, which `take_summaries` makes a cut.
"""

from data_synthesis.importers.envelope import BadRow, Row
from data_synthesis.importers.reset_turn import reset_turn
from data_synthesis.importers.turns import Notes

# What the interface needs and no model saw.
UNUSED = ("summary", "system", "progress", "file-history-snapshot", "queue-operation", "custom-title")


def is_event(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    if value.get("type") in ("user", "assistant") and isinstance(value.get("message"), dict):
        return "uuid" in value or "sessionId" in value
    return value.get("type") in UNUSED and not {"messages", "role", "content"} & (set(value) - {"content"})


def fold_sessions(rows: list[Row | BadRow], notes: Notes) -> list[Row | BadRow]:
    """The rows with all events of a session folded into conversations; other rows stay what they are."""
    if not any(isinstance(row, Row) and is_event(row.value) and "message" in row.value for row in rows):
        return rows
    folded: list[Row | BadRow] = []
    runs: dict[tuple, list[Row]] = {}
    for row in rows:
        if isinstance(row, BadRow) or not is_event(row.value):
            folded.append(row)
        elif row.value["type"] in UNUSED:
            notes["event_without_turn"] += 1
        else:
            key = (row.value.get("sessionId"), bool(row.value.get("isSidechain")), row.value.get("agentId"))
            runs.setdefault(tuple(map(str, key)), []).append(row)
    for run in runs.values():
        for branch in _branches(run, notes):
            folded.append(Row(branch[0].line, {"messages": _turns(branch, notes)}))
    return folded


def _branches(run: list[Row], notes: Notes) -> list[list[Row]]:
    """One list for each way the run went: a prompt asked again from one turn leaves the rest."""
    left: list[list[Row]] = []
    current: list[Row] = []
    asked: set[str] = set()
    for row in run:
        parent = row.value.get("parentUuid")
        if _is_prompt(row.value) and isinstance(parent, str):
            at = next((p for p, each in enumerate(current) if each.value.get("uuid") == parent), None)
            if parent in asked and at is not None:
                notes["branch"] += 1
                left.append(current)
                current = current[: at + 1]
            asked.add(parent)
        current.append(row)
    return [*left, current]


def _is_prompt(event: dict) -> bool:
    content = event["message"].get("content")
    parts = content if isinstance(content, list) else []
    results = any(isinstance(part, dict) and part.get("type") == "tool_result" for part in parts)
    return event["type"] == "user" and not results


def _turns(run: list[Row], notes: Notes) -> list[dict]:
    """One assistant message may stand on several lines, one block on each."""
    turns: list[dict] = []
    last_id = None
    for row in run:
        message = row.value["message"]
        if row.value.get("isCompactSummary"):
            turns.append(reset_turn(message.get("content")))
        elif message.get("id") and message["id"] == last_id and _both_lists(turns[-1], message):
            notes["line_of_one_message"] += 1
            turns[-1] = turns[-1] | {"content": turns[-1]["content"] + message["content"]}
        else:
            turns.append(message)
        last_id = message.get("id")
    return turns


def _both_lists(first: dict, second: dict) -> bool:
    return isinstance(first.get("content"), list) and isinstance(second.get("content"), list)
