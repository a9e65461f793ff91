"""Which questions are held out. Runs on one question, and questions that say the same, stay together."""

import hashlib
import math
import re
from collections import Counter, defaultdict

from condensery.tokens import CJK

SIMILAR = 0.9  # Jaccard overlap of word triples from which two tasks count as one
Shingles = frozenset[tuple[str, ...]]


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
            f"--held_out {held_out:g} means {count} of {len(groups)} questions; both sides need at least one"
        )
    drawn = sorted(groups, key=lambda group: hashlib.sha256(f"{seed}:{min(group)}".encode()).digest())
    return {question for group in drawn[:count] for question in group}


def group_questions(tasks: dict[str, str]) -> list[set[str]]:
    """Question ids in groups of (nearly) equal texts: a bug report under two ids, a question asked twice."""
    shingles: dict[str, Shingles] = {}
    leader: dict[str, str] = {}
    first_with: dict[Shingles, str] = {}
    for question, text in tasks.items():
        runs = _shingles(text)
        leader[question] = first_with.setdefault(runs, question)
        # Equal texts are one from here on: a question under a thousand ids would make a million pairs.
        if leader[question] == question:
            shingles[question] = runs

    def root(question: str) -> str:
        while leader[question] != question:
            question = leader[question]
        return question

    for first, second in _candidates(shingles):
        if _overlap(shingles[first], shingles[second]) >= SIMILAR:
            leader[root(second)] = root(first)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for question in tasks:
        groups[root(question)].add(question)
    return list(groups.values())


def _shingles(text: str) -> Shingles:
    """Runs of three words, or of three CJK characters; a shorter text is one run."""
    words = re.findall(rf"{CJK.pattern}|[^\W_]+", text.lower())
    return frozenset(tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2)))


def _candidates(shingles: dict[str, Shingles]) -> set[tuple[str, str]]:
    """Pairs that share one of their rarest runs: two sets that overlap by `SIMILAR` cannot avoid it."""
    frequency = Counter(run for runs in shingles.values() for run in runs)
    holders: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    pairs: set[tuple[str, str]] = set()
    for question, runs in shingles.items():
        # Prefix filtering: sets overlap by SIMILAR only if they share one of so many of their rarest runs,
        # which few others hold. All pairs would be quadratic in the questions.
        rarest = sorted(runs, key=lambda run: (frequency[run], run))
        for run in rarest[: len(runs) - math.ceil(SIMILAR * len(runs)) + 1]:
            pairs.update((other, question) for other in holders[run])
            holders[run].append(question)
    return pairs


def _overlap(first: Shingles, second: Shingles) -> float:
    return len(first & second) / len(first | second)
