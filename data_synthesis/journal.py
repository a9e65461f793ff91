"""The calls of a rollout, stored as they come: a run that is made again plays back what was paid for.

A rollout is a sequence of calls (of the explorer, the summarizer, a tool), each of which follows from the
results of those before. So the number of a call names it, and a killed rollout is made again from its first
step without asking anybody, up to the first call whose result is missing.
"""

from collections.abc import Iterable
from pathlib import Path

from condensery.files.jsonl import scan_jsonl
from condensery.message import Message
from condensery.reply import REFUSALS, EndpointError, Reply
from data_synthesis.agent import Log


class Journal:
    """`stored` are the rows of an earlier attempt at this rollout, `log` takes those of this one."""

    def __init__(self, log: Log, stored: Iterable[dict] = ()) -> None:
        self.log, self.stored, self.step = log, list(stored), 0

    def recall(self, kind: str, key: str) -> dict | None:
        """The stored row of the next call, which is of this kind and about `key`; None: it must be made.

        The first call that is missing, other than before, or failed is the end of what can be played back.
        """
        row = self.stored[self.step] if self.step < len(self.stored) else None
        if row is None or (row["kind"], row["key"]) != (kind, key) or must_be_made_again(row):
            self.stored = []
            return None
        self.step += 1
        return row

    def write(self, kind: str, key: str, row: dict) -> None:
        self.log({"kind": kind, "key": key, "step": self.step} | row)
        self.step += 1


def must_be_made_again(row: dict) -> bool:
    """A call that failed, unless it is a summarizer's refusal, after which the run went on without."""
    return "error" in row and not (row["kind"] == "summary" and row["error"] in REFUSALS)


def read_journals(path: Path, done: set[str]) -> dict[str, list[dict]]:
    """The stored calls of each rollout that is not done, by trajectory id. An attempt supersedes what earlier
    ones stored from its first own call on."""
    journals: dict[str, list[dict]] = {}
    for _, row in scan_jsonl(path):
        # A damaged line ends what can be played back of its rollout: the steps after it do not follow on.
        if isinstance(row, dict) and "step" in row and row["trajectory_id"] not in done:
            calls = journals.setdefault(row["trajectory_id"], [])
            if row["step"] <= len(calls):
                calls[row["step"] :] = [row]
    return journals


def answer_row(reply: Reply) -> dict:
    """What a model answered, as sent, and what the call took."""
    message = reply.message.to_chat() | {"content": reply.content}
    problem = {"problem": reply.problem} if reply.problem else {}
    return {"message": message} | problem | costs(reply)


def stored_reply(row: dict) -> Reply:
    """The reply that `answer_row` stored. Raises the EndpointError that stands in its place."""
    if "error" in row:
        raise EndpointError(row["error"], row["detail"], attempts=row["attempts"])
    return Reply(
        message=Message.model_validate(row["message"]),
        null_content=row["message"]["content"] is None,
        problem=row.get("problem"),
        **{name: row[name] for name in COSTS if name in row},
    )


COSTS = (
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "latency_seconds",
    "attempts",
)


def costs(reply: Reply) -> dict:
    """What a call took, for `calls.jsonl`."""
    return {name: getattr(reply, name) for name in COSTS}


def error_row(error: EndpointError) -> dict:
    return {"error": error.kind, "detail": error.detail, "attempts": error.attempts}
