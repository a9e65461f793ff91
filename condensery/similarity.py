"""Texts that say (nearly) the same: overlap of word triples, found without comparing all with all."""

import hashlib
import math
from collections import Counter, defaultdict

from condensery.words import words_of

Shingles = frozenset[int]


def shingles_of(text: str, length: int = 3) -> Shingles:
    """Hashes of the runs of `length` words; a shorter text is one run."""
    words = words_of(text)
    runs = (words[start : start + length] for start in range(max(1, len(words) - length + 1)))
    return frozenset(_hash(run) for run in runs)


def _hash(run: list[str]) -> int:
    """Equal on every machine, and a number: runs of thousands of histories stay in memory."""
    return int.from_bytes(hashlib.blake2b("\0".join(run).encode(), digest_size=8).digest())


def similar_pairs(shingles: dict[str, Shingles], similar: float) -> set[tuple[str, str]]:
    """All (earlier, later) ids whose texts overlap by `similar` or more (Jaccard)."""
    return {
        (first, second)
        for first, second in _candidates(shingles, similar)
        if overlap(shingles[first], shingles[second]) >= similar
    }


def overlap(first: Shingles, second: Shingles) -> float:
    return len(first & second) / len(first | second)


def _candidates(shingles: dict[str, Shingles], similar: float) -> set[tuple[str, str]]:
    """Pairs that share one of their rarest runs: two sets that overlap by `similar` cannot avoid it."""
    frequency = Counter(run for runs in shingles.values() for run in runs)
    holders: defaultdict[int, list[str]] = defaultdict(list)
    pairs: set[tuple[str, str]] = set()
    for name, runs in shingles.items():
        # Prefix filtering: sets overlap by `similar` only if they share one of so many of their rarest runs,
        # which few others hold. All pairs would be quadratic in the texts.
        rarest = sorted(runs, key=lambda run: (frequency[run], run))
        for run in rarest[: len(runs) - math.ceil(similar * len(runs)) + 1]:
            pairs.update((other, name) for other in holders[run])
            holders[run].append(name)
    return pairs
