"""SWE-agent's and SWE-smith's `.traj`: a `history` of turns with thought and action, or with tool calls."""

import json

from condensery.files.jsonl import parse_json
from condensery.message import FunctionCall, Message, ToolCall
from condensery.trajectory import Trajectory
from data_synthesis.importers.conversation import trajectory_of
from data_synthesis.importers.task import first_text, termination_of
from data_synthesis.importers.turns import Notes, pair_results, read_turns


def is_history(value: object) -> bool:
    """Turns have roles; the events of other agents' histories have none."""
    return isinstance(value, list) and bool(value) and all(isinstance(x, dict) and "role" in x for x in value)


def read_swe_agent(row: dict, notes: Notes) -> Trajectory:
    turns = row["history"]
    messages = read_turns(turns, notes)
    if not any(message.tool_calls for message in messages):
        messages = pair_results(_from_actions(messages, turns), notes)
    first_task = next(
        (p for p, turn in enumerate(turns) if turn["role"] == "user" and not turn.get("is_demo")), None
    )
    info = row.get("info") or {}
    return trajectory_of(
        messages,
        question=None,
        question_id=_instance_id(row),
        head=None if first_task is None else first_task + 1,
        prediction=first_text(info.get("submission")),
        termination=termination_of(info.get("exit_status"), answered=False),
    )


def _from_actions(messages: list[Message], turns: list[dict]) -> list[Message]:
    """The older style: an assistant turn of thought and shell action, answered by the next user turn."""
    translated = []
    after_action = False
    for message, turn in zip(messages, turns):
        if message.role == "user" and after_action:
            message = message.model_copy(update={"role": "tool"})
        elif message.role == "assistant" and turn.get("action"):
            arguments = json.dumps({"command": turn["action"]}, ensure_ascii=False)
            call = ToolCall(id="", function=FunctionCall(name="shell", arguments=arguments))
            message = message.model_copy(
                update={"content": (turn.get("thought") or "").strip(), "tool_calls": [call]}
            )
        after_action = bool(message.tool_calls)
        translated.append(message)
    return translated


def _instance_id(row: dict) -> str | None:
    """Depends on the version: in the row, as the environment, or in the replay configuration."""
    replay = row.get("replay_config") or {}
    replay = parse_json(replay) if isinstance(replay, str) else replay
    problem = replay.get("problem_statement") or {}
    names = [row.get("instance_id"), problem.get("id"), row.get("environment")]
    # "swe_main" and "main" name no task; an instance id has the form owner__repository-number.
    return next((name for name in names if isinstance(name, str) and "__" in name), None)
