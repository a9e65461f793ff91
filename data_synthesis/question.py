"""A task for an agent, with what is known about it."""

from pydantic import BaseModel, ConfigDict

from condensery.facts import Fact
from condensery.files.jsonl import to_record
from condensery.trajectory import content_id
from data_synthesis.importers.task import language_of


class Question(BaseModel):
    """A question with the user's constraints. `facts` are the hops to its answer, in order, where known."""

    model_config = ConfigDict(extra="forbid")
    id: str
    question: str
    answer: str | None = None
    constraints: list[str] = []
    language: str = "en"
    facts: list[Fact] | None = None


def question_from_row(row: dict) -> Question:
    """A row of a question file: ours, or ReSum's `{"question", "answer"}` (other keys are ignored there).

    Raises ValueError when there is no question text.
    """
    text = row.get("question")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"no 'question' text in the row; its keys are {', '.join(map(str, row)) or 'none'}")
    known = {name: row[name] for name in Question.model_fields if name in row}
    return to_record({"id": content_id(text), "language": language_of(text)} | known, Question)
