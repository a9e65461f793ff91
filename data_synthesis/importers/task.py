"""What a run was about: the task inside the first user turn, and the id that groups all runs on one task."""

import re

from condensery.tokens import CJK
from condensery.trajectory import Termination

# Each finds the task in the turn that some agent's harness wraps around it.
TASK_FORMS = [
    re.compile(r"</tools>.*?^(?:User|Question|用户|问题)[:：]\s*(?P<task>.+)", re.DOTALL | re.MULTILINE),
    re.compile(r"<(?P<tag>pr_description|issue_description)>(?P<task>.+?)</(?P=tag)>", re.DOTALL),
    re.compile(r"^ISSUE:\s*(?P<task>.+?)^INSTRUCTIONS:", re.DOTALL | re.MULTILINE),
]


def task_in(text: str) -> str:
    """The task in a first user turn; the whole turn where no harness is recognised."""
    found = (form.search(text) for form in TASK_FORMS)
    return next((match["task"] for match in found if match), text).strip()


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
