"""mini-SWE-agent: chat messages where a fenced bash block is the action, the next user turn its output."""

import re

FENCE = re.compile(r"```(?:bash|mswea_bash_command)[ \t]*\n(.*?)\n?```", re.DOTALL)


def is_mini_swe_agent(row: dict) -> bool:
    return str(row.get("trajectory_format")).startswith("mini-swe-agent") and isinstance(
        row.get("messages"), list
    )


def turns_of_fences(row: dict) -> list:
    turns: list = []
    after_action = False
    for turn in row["messages"]:
        content = turn.get("content") if isinstance(turn, dict) else None
        role = turn.get("role") if isinstance(turn, dict) else None
        commands = FENCE.findall(content) if isinstance(content, str) and role == "assistant" else []
        if role in ("user", "exit") and after_action:
            turn = turn | {"role": "tool"}
        elif role == "exit":  # how the run ended, in the agent's own words to itself
            turn = turn | {"role": "user"}
        elif len(commands) == 1 and not turn.get("tool_calls"):  # any other number is refused by the agent
            call = {"name": "bash", "arguments": {"command": commands[0]}}
            turn = turn | {"content": FENCE.sub("", str(content)).strip(), "tool_calls": [call]}
        after_action = len(commands) == 1
        turns.append(turn)
    return turns
