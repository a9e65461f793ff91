"""A hidden block with its names and numbers exchanged for others of the same history.

A wrong value still predicts the words around it: with SmolLM2 a summary of wrong facts makes the true blocks
likelier than a vague one does. Which of the two versions a model prefers, the true block or this one, tells
them apart.
"""

import random
import re

from condensery.facts import NAME

NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?!\w)")
VALUE = re.compile(f"(?P<name>{NAME.pattern})|(?P<number>{NUMBER.pattern})")


def swap_values(text: str, history: str, rng: random.Random) -> tuple[str, int]:
    """(the text with wrong values, how many were exchanged).

    The same value becomes the same other one throughout. A name needs another name in `history`; a number is
    replaced by one of the same length there, else by one nearby.
    """
    names = sorted({match["name"] for match in VALUE.finditer(history) if match["name"]})
    numbers = sorted({match["number"] for match in VALUE.finditer(history) if match["number"]})
    chosen: dict[str, str] = {}

    def exchange(match: re.Match[str]) -> str:
        value = match[0]
        if value not in chosen:
            pool = names if match["name"] else [other for other in numbers if len(other) == len(value)]
            others = [other for other in pool if other != value and other not in chosen.values()]
            if not others and match["number"]:
                others = [near_number(value, rng)]
            chosen[value] = rng.choice(others) if others else value
        return chosen[value]

    swapped = VALUE.sub(exchange, text)
    return swapped, sum(value != other for value, other in chosen.items())


def near_number(value: str, rng: random.Random) -> str:
    """Another number of the same form: its first run of digits moved by a few percent."""
    digits = re.match(r"\d+", value)
    assert digits is not None  # NUMBER begins with one
    number = int(digits[0])
    moved = number + rng.choice([-1, 1] if number > 1 else [1]) * rng.randint(1, max(1, number // 25))
    return f"{moved:0{len(digits[0])}}{value[digits.end() :]}"
