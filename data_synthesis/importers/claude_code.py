"""Claude Code sessions: a file of events that name their parents, folded into one conversation for each way
the session went.

A prompt asked again and a request tried again leave a branch, which is a run of its own; so is a sub-agent
(sidechain). A recorded compaction becomes a reset turn, which `take_summaries` makes a cut.
"""

from dataclasses import dataclass

from data_synthesis.importers.envelope import BadRow, Row
from data_synthesis.importers.reset_turn import reset_turn
from data_synthesis.importers.turns import Notes

TURNS = ("user", "assistant")
# What the interface keeps for itself, told by name where the event has no place in the session.
UNUSED = ("summary", "system", "progress", "file-history-snapshot", "queue-operation", "custom-title")


def is_event(value: object) -> bool:
    """Whether a session of Claude Code holds such an object, with a turn or without."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or "role" in value:
        return False
    return value["type"] in UNUSED or bool({"uuid", "sessionId", "leafUuid"} & set(value))


def has_turn(value: object) -> bool:
    return (
        is_event(value)
        and isinstance(value, dict)
        and value["type"] in TURNS
        and isinstance(value.get("message"), dict)
    )


def fold_sessions(rows: list[Row | BadRow], notes: Notes) -> list[Row | BadRow]:
    """The rows with all events of the sessions folded into conversations; other rows stay what they are."""
    if not any(isinstance(row, Row) and has_turn(row.value) for row in rows):
        return rows
    folded: list[Row | BadRow] = []
    events: list[Row] = []
    for row in rows:
        if isinstance(row, BadRow) or not is_event(row.value):
            folded.append(row)
        elif row.value["type"] in TURNS and not has_turn(row.value):
            folded.append(
                BadRow(row.line, f"a Claude Code event of type {row.value['type']} without a message")
            )
        else:
            events.append(row)
    for branch in branches(grow(events, notes), notes):
        folded.append(Row(branch[0].line, {"messages": _turns(branch, notes)}))
    return folded


@dataclass
class Step:
    """What no fork divides: a prompt, all lines of one assistant message, or all results of its calls.

    `parent` is the place of the step before it.
    """

    rows: list[Row]
    parent: int | None


def grow(events: list[Row], notes: Notes) -> list[Step]:
    """The session as a tree: every step after its parent.

    Lines of one message, and results of calls side by side, hang from each other in any order; they are one
    step each. A second answer to the same call is a fork, and takes the results beside it along.
    """
    steps: list[Step] = []
    places: dict[str, int | None] = {}  # of each event, by uuid; without a turn, of the step before it
    seen: dict[str, object] = {}  # the message of each event, by uuid
    messages: dict[str, int] = {}  # the step of each assistant message, by its id
    callers: dict[str, int] = {}  # the step that made each call, by the call's id
    results: dict[int, int] = {}  # the newest step with results of a step's calls
    newest: dict[tuple, int | None] = {}  # of each thread, where parents are not told
    linked = {_thread(row.value) for row in events if isinstance(row.value.get("parentUuid"), str)}
    for row in events:
        event = row.value
        # A session that was resumed repeats its events.
        if "uuid" in event and seen.get(str(event["uuid"])) == event.get("message", ""):
            notes["repeated_event"] += 1
            continue
        seen[str(event.get("uuid"))] = event.get("message", "")
        thread = _thread(event)
        place = _parent(event, places, newest.get(thread), thread in linked)
        if isinstance(event.get("parentUuid"), str) and event["parentUuid"] not in places:
            notes["lost_parent"] += 1
        if not has_turn(event) or event["message"].get("model") == "<synthetic>":  # an error the client shows
            notes["event_without_turn"] += 1
        else:
            answered = _answered(event)
            caller = next((callers[each] for each in answered if each in callers), None)
            name = str(event["message"].get("id") or "")
            if name in messages and place is not None and messages[name] in (place, steps[place].parent):
                place = messages[name]
                steps[place].rows.append(row)
            elif caller is None:
                steps.append(Step([row], place))
                place = len(steps) - 1
            else:
                place = results[caller] = _add_results(steps, row, caller, results.get(caller))
            if event["type"] == "assistant" and name:
                messages.setdefault(name, place)
            callers.update(dict.fromkeys(_ids(event, "tool_use", "id"), place))
        newest[thread] = place
        if isinstance(event.get("uuid"), str):
            places[event["uuid"]] = place
    return steps


def _thread(event: dict) -> tuple[str, ...]:
    return tuple(str(event.get(key)) for key in ("sessionId", "isSidechain", "agentId"))


def _parent(event: dict, places: dict[str, int | None], newest: int | None, is_linked: bool) -> int | None:
    """The place of the step before this event; where it is not told, the newest of its thread."""
    parent = event.get("parentUuid") or event.get("logicalParentUuid")  # the latter across a compaction
    if isinstance(parent, str) and parent in places:
        return places[parent]
    is_compaction = event.get("isCompactSummary") or event.get("subtype") == "compact_boundary"
    return None if is_linked and parent is None and "uuid" in event and not is_compaction else newest


def _add_results(steps: list[Step], row: Row, caller: int, newest: int | None) -> int:
    """The step that holds the results now: the newest one, or a fork of it."""
    answered = _answered(row.value)
    earlier = steps[newest].rows if newest is not None else []
    beside = [each for each in earlier if not answered & _answered(each.value)]
    if newest is not None and len(beside) == len(earlier):
        steps[newest].rows.append(row)
        return newest
    steps.append(Step([*beside, row], caller))
    return len(steps) - 1


def branches(steps: list[Step], notes: Notes) -> list[list[Row]]:
    """The lines of each way from a start to an end, in file order of the ends.

    A way that brings no reply of its own (a request that failed, a prompt that was withdrawn) is counted and
    left out: every compaction of it stands in another.
    """
    ends = set(range(len(steps))) - {step.parent for step in steps}
    kept: list[list[int]] = []
    seen: set[int] = set()
    for end in sorted(ends, reverse=True):
        path = _path(steps, end)
        is_fork = path[0] in seen
        if is_fork and not any(_is_reply(steps[place]) for place in path if place not in seen):
            notes["branch_without_reply"] += 1
            continue
        if is_fork:
            notes["branch"] += 1
        seen.update(path)
        kept.append(path)
    return [[row for place in path for row in steps[place].rows] for path in reversed(kept)]


def _path(steps: list[Step], end: int) -> list[int]:
    path = [end]
    while (parent := steps[path[-1]].parent) is not None:
        path.append(parent)
    return path[::-1]


def _is_reply(step: Step) -> bool:
    return step.rows[0].value["type"] == "assistant"


def _answered(event: dict) -> set[str]:
    return _ids(event, "tool_result", "tool_use_id")


def _ids(event: dict, kind: str, key: str) -> set[str]:
    content = event["message"].get("content")
    blocks = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return {str(block[key]) for block in blocks if block.get("type") == kind and key in block}


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
