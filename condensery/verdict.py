"""Whether an agent's answer is right: a judge's verdict, or none. No verdict is neither right nor wrong."""

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from condensery.files.jsonl import read_records

# The public ReSum code takes any judgement that starts with the letter A for "correct".
VERDICT = re.compile(r"Verdict: (correct|incorrect)\.?")
FILE = "verdicts.jsonl"


class Verdict(BaseModel):
    """`verdict` None: the judge's answer (`raw`) could not be read, or did not come (`failure`)."""

    model_config = ConfigDict(extra="forbid")
    trajectory_id: str
    verdict: bool | None
    judge: str
    prompt_template: str = ""
    raw: str = ""
    failure: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def parse_verdict(content: str | None) -> bool | None:
    """The verdict in a judge's answer: its last line, to the letter, and no other such line before it."""
    lines = [line.strip() for line in (content or "").rpartition("</think>")[2].splitlines() if line.strip()]
    found = [match for line in lines if (match := VERDICT.fullmatch(line))]
    if len(found) != 1 or not VERDICT.fullmatch(lines[-1]):
        return None
    return found[0][1] == "correct"


def read_verdicts(directory: Path, judge: str | None = None) -> dict[str, Verdict]:
    """The last verdict on each trajectory of a run, by its id; of one judge, or whoever spoke last.

    A missing verdict takes none away that was given.
    """
    path = directory / FILE
    verdicts: dict[str, Verdict] = {}
    for row in read_records(path, Verdict) if path.exists() else ():
        is_known = row.trajectory_id in verdicts and row.verdict is None
        if judge in (None, row.judge) and not is_known:
            verdicts[row.trajectory_id] = row
    return verdicts
