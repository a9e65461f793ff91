"""One moment when history is replaced, seen as a request: what a summarizer is asked.

Everything that trains, rewards or evaluates a summarizer starts from a list of these.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from condensery.facts import Fact
from condensery.message import Message
from condensery.trajectory import Trajectory, content_id
from condensery.units import unit_at


class Compaction(BaseModel):
    """`expired` is the history H to be replaced, `retained` the turns C that stay (empty in ReSum).

    `facts` is what is known to be true of this history (must keep, or distractor); None where no truth is
    known. `unit`: whether the sub-question at work was searched and read by then ("closed") or not ("open").
    """

    model_config = ConfigDict(extra="forbid")
    id: str
    trajectory_id: str
    question_id: str
    index: int
    language: str = "en"
    task: str
    retained: list[Message] = []
    expired: list[Message]
    last_summary: str | None = None
    facts: list[Fact] | None = None
    unit: Literal["closed", "open"] | None = None


def compaction_of(trajectory: Trajectory, position: int, made_at: int | None = None) -> Compaction:
    """The request at `position` of a run: everything since the last accepted summary has expired, and the
    turns that follow, up to `made_at`, stay.

    Facts are those whose source stands in the history, so that a summary is never asked for what it cannot
    know.
    """
    done = [cut for cut in trajectory.cuts if cut.summary is not None and cut.position < position]
    start, last_summary = (done[-1].position, done[-1].summary) if done else (trajectory.head, None)
    expired = trajectory.messages[start:position]
    retained = trajectory.messages[position:made_at] if made_at else []
    fields: dict = {
        "task": trajectory.task,
        "expired": [message.to_chat() for message in expired],
        "last_summary": last_summary,
    }
    if retained:
        fields["retained"] = [message.to_chat() for message in retained]
    return Compaction(
        id=content_id(fields | {"trajectory": trajectory.id, "position": position}),
        trajectory_id=trajectory.id,
        question_id=trajectory.question_id,
        index=len(done),
        language=trajectory.language,
        task=trajectory.task,
        retained=retained,
        expired=expired,
        last_summary=last_summary,
        facts=None if trajectory.facts is None else facts_within(trajectory.facts, expired, last_summary),
        unit=unit_at(trajectory.messages, position),
    )


def compactions_of(trajectory: Trajectory) -> list[Compaction]:
    """All compactions of a run, in order, one per cut, whether its summary was accepted or not."""
    return [compaction_of(trajectory, cut.position, cut.made_at) for cut in trajectory.cuts]


def facts_within(facts: list[Fact], expired: list[Message], last_summary: str | None) -> list[Fact]:
    """The facts that can be read in this history or in the summary before it."""
    text = "\n".join([*(message.content for message in expired), last_summary or ""])
    return [fact for fact in facts if fact.stands_in(text)]
