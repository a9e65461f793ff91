"""The words of the offline web: kinds of entities, attributes, phrasings, how values are written."""

import random
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import yaml

MONTHS = "January February March April May June July August September October November December".split()


@cache
def load_vocabulary(language: str) -> dict[str, Any]:
    """The YAML file of a language. Raises ValueError naming the languages there are."""
    folder = Path(__file__).parent / "vocabulary"
    path = folder / f"{language}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise ValueError(f"no offline web in language {language!r}; there is {known}")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def draw_value(spec: dict, rng: random.Random) -> Any:
    """A raw value of an attribute that is not another entity: int, (year, month, day) or a word."""
    if spec["type"] == "choice":
        return rng.choice(spec["of"])
    if spec["type"] == "date":
        return rng.randint(spec["low"], spec["high"]), rng.randint(1, 12), rng.randint(1, 28)
    return rng.randint(spec["low"], spec["high"])


def near_value(spec: dict, value: Any, rng: random.Random) -> Any:
    """A different value that is easily taken for `value`: near-equal numbers are what memory confuses."""
    if spec["type"] == "choice":
        return rng.choice([word for word in spec["of"] if word != value])
    if spec["type"] == "date":
        return value[0] + rng.choice([-2, -1, 1, 2]), value[1], (value[2] + rng.randint(2, 20)) % 28 + 1
    if spec["type"] == "year":
        return value + rng.choice([-4, -3, -2, -1, 1, 2, 3, 4])
    return value + rng.choice([-1, 1]) * max(1, rng.randint(value // 100, max(1, value // 20)))


def write_value(spec: dict, value: Any, language: str) -> str:
    """The value as pages print it: 1,942 m / 3 March 1921 / 1921年3月3日."""
    if spec["type"] == "date":
        year, month, day = value
        return f"{day} {MONTHS[month - 1]} {year}" if language == "en" else f"{year}年{month}月{day}日"
    if spec["type"] != "number":
        return str(value)
    number = f"{value:,}" if language == "en" else str(value)
    return (
        f"{number} {spec['unit']}" if language == "en" and "unit" in spec else number + spec.get("unit", "")
    )


def aliases_of(spec: dict, text: str) -> list[str]:
    """A number counts without its unit, too."""
    return [text.removesuffix(spec["unit"]).strip()] if "unit" in spec else []


def entity_names(
    vocabulary: dict, kind: str, pattern_key: str, part: str, joined: bool = False
) -> list[tuple[str, str]]:
    """(name, word) of all entities of a kind; training and held-out webs draw from disjoint halves.

    `joined`: two and three words make one, too, for webs of thousands of entities.
    """
    half = 0 if part == "train" else 1
    words = {
        name: pool if name == "given" else pool[half::2]
        for name, pool in vocabulary["names"].items()
        if name != "joints"
    }
    if joined:
        words = {name: pool if name == "given" else _join(pool, vocabulary) for name, pool in words.items()}
    names = []
    for pattern in vocabulary["kinds"][kind].get(pattern_key, []):
        for outer in words["surname"] if "{surname}" in pattern else words["word"]:
            for given in words["given"] if "{given}" in pattern else [""]:
                names.append((pattern.format(surname=outer, word=outer, given=given), outer))
    return names


def _join(pool: list[str], vocabulary: dict) -> list[str]:
    """The words, and all ordered pairs and triples of them with a joint behind: no name made of one stands
    inside another, not even in Chinese, where no space keeps words apart."""
    joints = vocabulary["names"]["joints"]
    pairs = ["".join([first, second.lower()]) for first, second in permutations(pool, 2)]
    triples = ["".join([a, b.lower(), c.lower()]) for a, b, c in permutations(pool[:12], 3)]
    return [
        *pool,
        *(pair + joint for joint in joints["two"] for pair in pairs),
        *(triple + joint for joint in joints["three"] for triple in triples),
    ]
