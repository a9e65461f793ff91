"""What damaged summaries are made from: an honest summary by lines, and the truth about its history."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from condensery.compaction import Compaction
from condensery.facts import Fact

# The words of what is written anew; languages without their own get English.
FORMS = {
    "en": {
        "claim": "- [{source}] The {attribute} of {subject} is {value}.",
        "range": "{old} to {new}",
        "vague": "- Something was found on the {attribute} of {subject}.",
    },
    "zh": {
        "claim": "- [{source}] {subject}的{attribute}为{value}。",
        "range": "{old}至{new}",
        "vague": "- 找到了关于{subject}的{attribute}的一些信息。",
    },
}


@dataclass(frozen=True)
class Case:
    """`lines` of the honest summary; `rng` the dice; `max_tokens` is the budget of a summary; `elsewhere` has
    values by attribute, of histories beside this one."""

    compaction: Compaction
    lines: list[str]
    rng: random.Random
    max_tokens: int
    elsewhere: Mapping[str, Sequence[str]]

    @property
    def facts(self) -> list[Fact]:
        return self.compaction.facts or []

    @property
    def forms(self) -> dict[str, str]:
        return FORMS.get(self.compaction.language, FORMS["en"])

    def stated(self) -> list[tuple[int, Fact]]:
        """(line, must-keep fact that it states), in the order of the lines."""
        return [
            (number, fact)
            for number, line in enumerate(self.lines)
            for fact in self.facts
            if fact.must_keep and fact.stands_in(line)
        ]

    def claims_beside(self, fact: Fact) -> list[Fact]:
        """What else the history says of the same attribute: older and newer values, contradictions."""
        return [
            other
            for other in self.facts
            if (other.subject, other.attribute) == (fact.subject, fact.attribute)
            and other.value != fact.value
        ]

    def with_line(self, number: int, *instead: str) -> str:
        return "\n".join([*self.lines[:number], *instead, *self.lines[number + 1 :]])


def swap_value(line: str, fact: Fact, value: str) -> str:
    """The line with another value of the fact; unchanged where the fact stands in other words."""
    standing = next((text for text in [fact.value, *fact.aliases] if swap(line, text, "") != line), None)
    return line if standing is None else swap(line, standing, value)


def swap(line: str, old: str, new: str) -> str:
    """`old` as a whole becomes `new`: 1921 stays in 1,921 and in 19210."""
    return re.sub(rf"(?<![A-Za-z0-9])(?<!\d[.,]){re.escape(old)}(?![A-Za-z0-9]|[.,]\d)", lambda _: new, line)
