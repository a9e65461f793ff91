"""ReAct text: `Action: search` with `Action Input: ...` or `Action: search[...]`, then `Observation: ...`."""

import re

ACTION = re.compile(
    r"^Action(?: \d+)?:[ \t]*(\w+)(?:[ \t]*\[(.*)\][ \t]*$|[ \t]*\nAction Input(?: \d+)?:[ \t]*)",
    re.MULTILINE,
)
OBSERVATION = re.compile(r"^Observation(?: \d+)?:[ \t]*", re.MULTILINE)


def is_react(turn: object) -> bool:
    if not isinstance(turn, dict) or "tool_calls" in turn:
        return False
    content = turn.get("content", turn.get("value"))
    return isinstance(content, str) and ACTION.search(content) is not None


def split_react(turns: list) -> list:
    """The turns in the chat shape: an action is a call, an observation its result, wherever they stand."""
    translated: list = []
    after_call = False
    for turn in turns:
        role = turn.get("role", turn.get("from")) if isinstance(turn, dict) else None
        if role in ("assistant", "gpt") and is_react(turn):
            translated += _split(turn.get("content", turn.get("value")))
            after_call = bool(translated[-1].get("tool_calls"))
            continue
        content = turn.get("content", turn.get("value")) if isinstance(turn, dict) else None
        if after_call and role in ("user", "human") and isinstance(content, str):
            observed = OBSERVATION.match(content)
            turn = {"role": "tool", "content": content[observed.end() :]} if observed else turn
        after_call = False
        translated.append(turn)
    return translated


def _split(text: str) -> list[dict]:
    turns: list[dict] = []
    start, *observed = OBSERVATION.split(text)
    turns.append(_action(start))
    for part in observed:
        result, thought, rest = part.partition("\nThought")
        turns.append({"role": "tool", "content": result.strip()})
        if thought:
            turns.append(_action((thought + rest).strip()))
    return turns


def _action(text: str) -> dict:
    found = ACTION.search(text)
    if not found:
        return {"role": "assistant", "content": text.strip()}
    given = found[2] if found[2] is not None else text[found.end() :].strip()
    return {
        "role": "assistant",
        "content": text[: found.start()].strip(),
        "tool_calls": [{"name": found[1], "arguments": given}],
    }
