"""ATIF, harbor's Agent Trajectory Interchange Format: `steps` with their calls and observations."""

SOURCES = {"system": "system", "user": "user", "agent": "assistant"}


def is_atif(row: dict) -> bool:
    return str(row.get("schema_version")).startswith("ATIF") and isinstance(row.get("steps"), list)


def turns_of_steps(row: dict) -> list[dict]:
    """The steps in the chat shape; a result in a step's observation is a turn of its own."""
    turns = []
    for step in row["steps"]:
        calls = [
            {
                "id": call.get("tool_call_id"),
                "name": call.get("function_name"),
                "arguments": call.get("arguments"),
            }
            for call in step.get("tool_calls") or []
        ]
        turns.append(
            {
                "role": SOURCES.get(step.get("source"), step.get("source")),
                "content": step.get("message"),
                "reasoning_content": step.get("reasoning_content"),
                "tool_calls": calls,
            }
        )
        for result in (step.get("observation") or {}).get("results") or []:
            turns.append(
                {
                    "role": "tool",
                    "tool_call_id": result.get("source_call_id"),
                    "content": result.get("content"),
                }
            )
    return turns
