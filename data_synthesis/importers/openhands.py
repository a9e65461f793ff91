"""OpenHands: a `history` of actions and observations, with the model's own calls beside them or without."""

from condensery.trajectory import Trajectory
from data_synthesis.importers.conversation import trajectory_of
from data_synthesis.importers.task import first_text
from data_synthesis.importers.turns import Notes, read_turns


def is_events(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(x, dict) and ("action" in x or "observation" in x) for x in value)
    )


def read_openhands(row: dict, notes: Notes) -> Trajectory:
    turns: list[dict] = []
    for event in row["history"]:
        _add(event, turns, notes)
    said = [turn for turn in turns if turn["role"] != "assistant" or turn["content"] or turn["tool_calls"]]
    notes["empty_turn"] += len(turns) - len(said)
    return trajectory_of(
        read_turns(said, notes), question=None, question_id=first_text(row.get("instance_id"))
    )


def _add(event: dict, turns: list[dict], notes: Notes) -> None:
    kind = event.get("action")
    args = event.get("args") or {key: v for key, v in event.items() if key not in ("action", "thought")}
    call_id = (event.get("tool_call_metadata") or {}).get("tool_call_id")
    if "recall" in (kind, event.get("observation")):  # the interface looks up its notes; no model sees it
        notes["event_without_turn"] += 1
    elif kind == "system":
        turns.append({"role": "system", "content": args.get("content")})
    elif kind == "message":
        from_agent = event.get("source") == "agent" or (not event.get("source") and bool(turns))
        turns.append({"role": "user", "content": args.get("content")})
        if from_agent:
            turns[-1] |= {"role": "assistant", "tool_calls": []}
    elif kind:
        thought = args.get("thought", event.get("thought"))
        arguments = {key: v for key, v in args.items() if key != "thought"}
        call = {"id": call_id, "name": kind, "arguments": arguments}
        turns.append({"role": "assistant", "content": thought, "tool_calls": [call]})
    else:
        turns.append({"role": "tool", "tool_call_id": call_id, "content": event.get("content")})
