"""What a run was about: the task inside the first user turn, and the id that groups all runs on one task."""

import re

from condensery.tokens import CJK
from condensery.trajectory import Termination

# What some agent's harness puts before the task and behind it, in the turn that holds it.
TASK_FORMS = [
    (re.compile(r"</tools>"), re.compile(r"^(?:User|Question|用户|问题)[:：]", re.MULTILINE), None),
    (re.compile(r"<pr_description>"), None, re.compile(r"</pr_description>")),
    (re.compile(r"<issue_description>"), None, re.compile(r"</issue_description>")),
    (re.compile(r"^ISSUE:", re.MULTILINE), None, re.compile(r"^INSTRUCTIONS:", re.MULTILINE)),
]


def task_in(text: str) -> str:
    """The task in a first user turn; the whole turn where no harness is recognised."""
    for opening, label, closing in TASK_FORMS:
        start = opening.search(text)
        # One search after the other, each through the rest: as one pattern they would be quadratic.
        if start and label:
            start = label.search(text, start.end())
        end = closing.search(text, start.end()) if start and closing else None
        if start and (end or not closing):
            task = text[start.end() : end.start() if end else None].strip()
            if task:
                return task
    return text.strip()


def language_of(text: str) -> str:
    """Told by script alone: "ja", "ko", "zh", or "en" for everything written in other letters."""
    letters = len(re.findall(r"[^\W\d_]", text)) or 1
    if len(CJK.findall(text)) < 0.2 * letters:
        return "en"
    if re.search(r"[\uac00-\ud7af]", text):
        return "ko"
    return "ja" if re.search(r"[\u3040-\u30ff]", text) else "zh"


def first_text(value: object) -> str | None:
    """An answer, out of however many lists a log wraps around it."""
    while isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else None


def termination_of(reason: object, answered: bool) -> Termination:
    """ReSum's and SWE-agent's words for how a run ended."""
    word = reason.lower() if isinstance(reason, str) else ""
    if "token" in word or "context" in word:
        return "token_limit"
    if "llm call" in word or "cost" in word:
        return "call_limit"
    return "answer" if answered or word in ("answer", "submitted") else "imported"
