"""Which questions are held out. Runs on one question, and questions that say the same, stay together."""

import hashlib
from collections import defaultdict

from condensery.similarity import Shingles, shingles_of, similar_pairs

SIMILAR = 0.9  # Jaccard overlap of word triples from which two tasks count as one


def check_held_out(held_out: float) -> None:
    """ValueError for a setting `--held_out` that is neither a share nor a number."""
    if held_out < 0 or (held_out > 1 and not held_out.is_integer()):
        raise ValueError(f"--held_out is {held_out:g}; a share below 1, or a whole number of questions")


def held_out_questions(tasks: dict[str, str], held_out: float, seed: int) -> set[str]:
    """The ids of the held-out questions. `tasks` maps a question id to its text; `held_out` is a share of the
    groups of equal questions below 1, and their number from 1 on.

    Groups are drawn by a seeded hash, so that neither their order nor a few new ones reshuffle them.
    Raises ValueError when nothing would be left on one side.
    """
    groups = group_questions(tasks)
    count = round(held_out * len(groups)) if held_out < 1 else int(held_out)
    if held_out and not 0 < count < len(groups):
        raise ValueError(
            f"--held_out {held_out:g} means {count} of {len(groups)} questions; both sides need at least "
            "one, and --held_out 0 keeps all for training"
        )
    drawn = sorted(groups, key=lambda group: hashlib.sha256(f"{seed}:{min(group)}".encode()).digest())
    return {question for group in drawn[:count] for question in group}


def group_questions(tasks: dict[str, str]) -> list[set[str]]:
    """Question ids in groups of (nearly) equal texts: a bug report under two ids, a question asked twice."""
    shingles: dict[str, Shingles] = {}
    leader: dict[str, str] = {}
    first_with: dict[Shingles, str] = {}
    for question, text in tasks.items():
        runs = shingles_of(text)
        leader[question] = first_with.setdefault(runs, question)
        # Equal texts are one from here on: a question under a thousand ids would make a million pairs.
        if leader[question] == question:
            shingles[question] = runs

    def root(question: str) -> str:
        while leader[question] != question:
            question = leader[question]
        return question

    for first, second in similar_pairs(shingles, SIMILAR):
        leader[root(second)] = root(first)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for question in tasks:
        groups[root(question)].add(question)
    return list(groups.values())
