"""One run of an agent on one task: its messages, where it was compacted, and how it ended."""

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from condensery.facts import Fact
from condensery.message import Message

Termination = Literal[
    "answer",  # the agent gave an answer
    "call_limit",  # no calls left
    "token_limit",  # the context is full and could not be compacted
    "token_budget",  # the run has used all the tokens it may
    "time_limit",  # the run has used all the time it may
    "summary_failed",  # compaction was due, and the summarizer gave nothing acceptable
    "unparsable_call",  # the model's calls could not be read, more often than tolerated
    "endpoint_error",  # the explorer's endpoint failed for good
    "imported",  # a log that does not say
]

# How an agent keeps within its window (FACTS 1): append all, keep the newest, mask old results, have a
# summarizer rewrite the state, or rewrite a memory of its own at each step.
Paradigm = Literal["react", "recent", "masking", "resum", "mem1"]


def content_id(value: object) -> str:
    """A short stable hash of any JSON value; equal content has an equal id on every machine."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Cut(BaseModel):
    """A moment of compaction: `messages[:position]` had expired, and this is what the summarizer answered.

    Exactly one of `summary` (accepted) and `failure` (a typed reason) is set. After a failure the agent's
    messages stay as they were. `made_at` counts the turns that stood when it was made, where these are more.
    """

    model_config = ConfigDict(extra="forbid")
    position: int
    made_at: int | None = None
    summary: str | None = None
    failure: str | None = None
    raw: str = ""
    reasoning: str = ""
    author: str = ""
    prompt_template: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def taken_at(self) -> int:
        return self.position if self.made_at is None else self.made_at


class Border(BaseModel):
    """A moment from which the model saw less, without a summary: the head, then `messages[start:]`, with
    placeholders for the tool results before `masked_before`. It holds for the turns from `position` on.
    """

    model_config = ConfigDict(extra="forbid")
    position: int
    start: int
    masked_before: int = 0


class Trajectory(BaseModel):
    """`messages` holds all turns in order, none removed: what the model saw at any turn is derived from
    `cuts` (ReSum) and `borders` (paradigms without a summarizer).

    `head` counts the leading turns that no compaction touches (system turn and question). `forced`: the last
    answer was asked for because the budget ended.
    """

    model_config = ConfigDict(extra="forbid")
    id: str
    question_id: str
    rollout: int = 0
    question: str
    constraints: list[str] = []
    language: str = "en"
    answer: str | None = None
    head: int
    messages: list[Message]
    cuts: list[Cut] = []
    borders: list[Border] = []
    paradigm: Paradigm | None = None
    num_tokens: int | None = None
    termination: Termination = "imported"
    forced: bool = False
    prediction: str | None = None
    verdict: bool | None = None
    facts: list[Fact] | None = None
    source: str = ""

    @property
    def task(self) -> str:
        """The question with the user's constraints: what a summarizer must not lose."""
        return "\n".join([self.question, *(f"- {constraint}" for constraint in self.constraints)])


def trajectories_file(path: Path) -> Path:
    """The file of a run directory. Raises ValueError when there is none, or it holds nothing."""
    file = path / "trajectories.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"no {file}; `condensery record` and `condensery import` write it")
    if not file.stat().st_size:
        raise ValueError(f"{file} holds no trajectory")
    return file
