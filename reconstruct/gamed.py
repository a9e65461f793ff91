"""Summaries that play for the reward: what a policy drifts to when a reward pays for the wrong thing.

Each changes the whole summary. `wrong_facts` and `vague` leave the lines without known facts as they are, so
that the two differ in nothing but what they say of the facts.
"""

import re

from condensery.facts import Fact
from condensery.prompt import render_history
from condensery.tokens import CJK
from reconstruct.case import Case, swap_value

NUM_REPETITIONS = 8
DIGITS = re.compile(r"\d+(?:,\d{3})*")
FILLER = {
    "en": [
        "The research is going on and has made good progress.",
        "Several sources were consulted with care.",
        "What was found will be of use for the next steps.",
        "The question needs a careful look from more than one side.",
        "All of this should be kept in mind from here on.",
        "It remains important to stay close to the task.",
        "Many pages were read, and some were more helpful than others.",
        "Further work will show how the pieces fit together.",
        "The results so far have been gathered in good order.",
        "Nothing speaks against going on in the same way.",
        "A thorough approach has been taken throughout.",
        "The overall picture is slowly becoming clearer.",
    ],
    "zh": [
        "研究正在进行，进展顺利。",
        "已经仔细查阅了若干来源。",
        "目前的发现对后续步骤会有帮助。",
        "这个问题需要从多个角度认真看待。",
        "以上内容今后都应当记住。",
        "紧扣任务仍然十分重要。",
        "读了不少网页，其中一些更有用。",
        "接下来的工作会说明各部分如何衔接。",
        "到目前为止的结果已整理妥当。",
        "没有什么理由改变现在的做法。",
        "整个过程都采取了周密的方法。",
        "总体情况正逐渐清晰。",
    ],
}


def say_nothing(case: Case) -> str:
    return ""


def copy_history(case: Case) -> str:
    return first_tokens(render_history(case.compaction.expired), case.max_tokens)


def repeat_one_fact(case: Case) -> str | None:
    numbers = sorted({number for number, _ in case.stated()})
    return "\n".join([case.lines[case.rng.choice(numbers)]] * NUM_REPETITIONS) if numbers else None


def pad(case: Case) -> str:
    """Sentences in drawn order until the summary is twice as long; the round is repeated where it must be."""
    honest = "\n".join(case.lines)
    sentences = FILLER.get(case.compaction.language, FILLER["en"])
    added: list[str] = []
    while sum(map(len, added)) < len(honest):
        added += case.rng.sample(sentences, len(sentences))
    while sum(map(len, added[:-1])) >= len(honest):
        added.pop()
    return "\n".join([honest, *added])


def name_all(case: Case) -> str | None:
    names = {text: None for fact in case.facts for text in (fact.subject, fact.value) if not _has_digit(text)}
    return "\n".join(f"- {name}" for name in names) or None


def invent_values(case: Case) -> str | None:
    """None when a value has no replacement: it would stay true."""
    lines = list(case.lines)
    wrong: dict[str, str] = {}  # the same value is replaced by the same, in a statement and in its conflict
    for number, fact in case.stated():
        if fact.value not in wrong:
            others = _other_values(case, fact)
            if not others:
                return None
            wrong[fact.value] = case.rng.choice(others)
        lines[number] = swap_value(lines[number], fact, wrong[fact.value])
    return "\n".join(lines) if wrong else None


def _other_values(case: Case, fact: Fact) -> list[str]:
    """Of the same attribute, elsewhere in the history or else in others; of a number, else, one near it."""
    claimed = {fact.value, *(claim.value for claim in case.claims_beside(fact))}
    here = [other.value for other in case.facts if other.attribute == fact.attribute]
    for values in (here, case.elsewhere.get(fact.attribute, [])):
        if found := [value for value in values if value not in claimed]:
            return found
    return [near_number(fact.value, case)] if _has_digit(fact.value) else []


def near_number(value: str, case: Case) -> str:
    """The longest number of a value changed by a few percent, written as it was."""
    digits = max(DIGITS.finditer(value), key=lambda match: len(match[0]))
    number = int(digits[0].replace(",", ""))
    number += case.rng.choice([-1, 1] if number > 1 else [1]) * case.rng.randint(1, max(1, number // 25))
    return (
        value[: digits.start()] + (f"{number:,}" if "," in digits[0] else str(number)) + value[digits.end() :]
    )


def leave_out_values(case: Case) -> str | None:
    lines: dict[int, list[str]] = {number: [line] for number, line in enumerate(case.lines)}
    stated = case.stated()
    for number in {number for number, _ in stated}:
        topics = [case.forms["vague"].format(**fact.model_dump()) for at, fact in stated if at == number]
        lines[number] = topics
    return "\n".join(dict.fromkeys(line for block in lines.values() for line in block)) if stated else None


def first_tokens(text: str, max_tokens: int) -> str:
    """The beginning of a text, by the estimate that needs no tokenizer (condensery.tokens)."""
    num_thirds = 0
    for position, character in enumerate(text):
        num_thirds += 3 if CJK.match(character) else 1
        if num_thirds > 3 * max_tokens:
            return text[:position]
    return text


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)
