"""A compaction that a log holds, written as ReSum's reset turn: `take_summaries` makes it a cut."""

# ReSum's reset turn (FACTS 1): the log of a run that was compacted already.
SUMMARY_START = "Below is a summary of the previous conversation."


def reset_turn(content: object) -> dict:
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    text = "\n".join(each for each in texts if isinstance(each, str))
    return {"role": "user", "content": f"{SUMMARY_START}\nSummary: {text}"}
