"""What a reward must not pay for: inventions, copies, repetitions, answers that no client can read.

Shares in [0, 1], from text alone: no truth and no model is needed, so they hold on any log. All are linear
in the text, CJK too: a summary of 100 KB against a history of 300 KB takes under two seconds.

What is tolerated is above what honest summaries have. Mean and largest, of the oracle teacher over offline
webs (4,361 in English at windows of 700 and 1,500 tokens, 681 in Chinese), and of the extractive baseline,
sentences to the letter, on 63 histories of public search, service and coding logs:

                      English        Chinese        extractive
    copied            0.13, 0.54     0.11, 0.53     0.45, 0.70
    repeated          0.00, 0.16     0.04, 0.14     0.07, 0.26
    unsupported       0,    0        0,    0        0.01, 0.11
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from condensery.compaction import Compaction
from condensery.facts import IDENTIFIER, NAME, QUOTE, normalize, split_sentences, values_in
from condensery.prompt import history_text, render_history, unescape
from condensery.summary import parse_summary
from condensery.tokens import CJK
from condensery.words import words_of

Gram = tuple[str, ...]
Lines = dict[Gram, set[int]]
POSSESSIVE = re.compile(r"[’']s$")
MAX_GRAM = 8  # words; longer values (quotes, URLs) are looked up in pieces
COPIED_WORDS, REPEATED_WORDS = 8, 4  # of CJK text twice as many, where a word is about two characters
TOLERATED_COPY, TOLERATED_REPETITION = 0.75, 0.3
MAX_PENALTY = 2.0  # the range of Q, precision + recall: full of any of these, a summary is worth nothing


def guard_penalty(summary: str, compaction: Compaction) -> float:
    """What to take off a quality in [0, 2]; 0 for an honest summary."""
    summary, history = unescape(summary), unescape(render_history(compaction.expired))
    shares = [
        unsupported_share(summary, compaction),
        copied_share(summary, history),
        excess(repetition_rate(summary), TOLERATED_REPETITION),
    ]
    return MAX_PENALTY * min(1.0, sum(shares))


def copied_share(summary: str, history: str) -> float:
    """How far a summary is a copy, in the measure of its length: a few sentences that were taken over are a
    summary, half of a history is none."""
    length = len(words_of(summary)) / max(1, len(words_of(history)))
    return excess(copy_rate(summary, history), TOLERATED_COPY) * min(1.0, 2 * length)


def excess(rate: float, tolerated: float) -> float:
    """How far above the tolerated a rate is: 0 up to it, 1 at a rate of 1."""
    return max(0.0, rate - tolerated) / (1 - tolerated)


def is_well_formed(completion: str, finish_reason: str | None = "stop") -> bool:
    """The format gate: one summary block that clients can read and that says something."""
    return parse_summary(completion, finish_reason).text is not None


def copy_rate(summary: str, history: str) -> float:
    """Share of the summary's runs of 8 words that stand in the history, too.

    `history` is what expired, without the last summary: carrying that over is no copying.
    """
    words = words_of(summary)
    length = COPIED_WORDS * _characters_a_word(words)
    runs = list(_runs(words, length))
    known = set(_runs(words_of(history), length)) if runs else set()
    return sum(run in known for run in runs) / max(1, len(runs))


def repetition_rate(summary: str) -> float:
    """Share of lines, or of runs of 4 words if that is more, that stood in the summary before."""
    words = words_of(summary)
    runs = list(_runs(words, REPEATED_WORDS * _characters_a_word(words)))
    lines = [line.strip() for line in summary.splitlines() if line.strip()]
    return max(1 - len(set(all_)) / len(all_) if all_ else 0.0 for all_ in (runs, lines))


def unsupported_share(summary: str, compaction: Compaction) -> float:
    """Share of statements with a value that the input (task, last summary, history, retained turns) lacks.

    Values are numbers, dates, names, identifiers and quotes. Where a statement names somebody, its numbers
    and other names must stand in one line of the input with one of the names: a true number next to the wrong
    name is an invention. Statements without a value do not count. Chinese names cannot be told from other
    words, so there a value need only stand somewhere.
    """
    claims = [_Claim(statement) for statement in split_sentences(unescape(summary))]
    claims = [claim for claim in claims if any(claim.grams())]
    lines = _lines_with({gram for claim in claims for gram in claim.grams()}, history_text(compaction))
    return sum(not claim.is_borne(lines) for claim in claims) / max(1, len(claims))


class _Claim:
    """The values of a statement as words; `literals` are identifiers and quotes."""

    def __init__(self, statement: str) -> None:
        names = NAME.findall(statement)
        literals = [*IDENTIFIER.findall(statement), *QUOTE.findall(statement)]
        numbers = [text for text in values_in(statement) if text not in {*names, *literals}]
        self.names = list(
            dict.fromkeys(tuple(words_of(POSSESSIVE.sub("", name))[:MAX_GRAM]) for name in names)
        )
        self.literals = [piece for text in literals for piece in _pieces(text)]
        self.numbers = [piece for text in numbers for piece in _pieces(text)]

    def grams(self) -> Iterator[Gram]:
        yield from (*self.names, *map(_without_first, self.names), *self.literals, *self.numbers)

    def is_borne(self, lines: Lines) -> bool:
        named = [_lines_of_name(name, lines) for name in self.names]
        return (
            all(piece in lines for piece in self.literals)
            and all(_is_near(lines.get(piece, set()), named) for piece in self.numbers)
            and all(_is_near(each, [*named[:at], *named[at + 1 :]]) for at, each in enumerate(named))
        )


def _is_near(places: set[int], others: list[set[int]]) -> bool:
    return any(not places.isdisjoint(other) for other in others) if others else bool(places)


def _lines_of_name(name: Gram, lines: Lines) -> set[int]:
    """A sentence's first word looks like part of a name: "Population of Amber Bay"."""
    rest = _without_first(name)
    return lines.get(name, set()) | (lines.get(rest, set()) if len(rest) > 1 else set())


def _without_first(name: Gram) -> Gram:
    return name[2:] if name[1:2] in (("of",), ("the",)) else name[1:]


def _lines_with(wanted: set[Gram], text: str) -> Lines:
    """By wanted gram the numbers of the lines that hold it."""
    lines: defaultdict[Gram, set[int]] = defaultdict(set)
    lengths = {len(gram) for gram in wanted if gram}
    for number, line in enumerate(text.splitlines()):
        words = words_of(normalize(line))
        for gram in (gram for length in lengths for gram in _runs(words, length) if gram in wanted):
            lines[gram].add(number)
    return dict(lines)


def _pieces(value: str) -> Iterator[Gram]:
    words = words_of(normalize(value))
    yield from (tuple(words[start : start + MAX_GRAM]) for start in range(0, len(words), MAX_GRAM))


def _runs(words: list[str], length: int) -> Iterable[Gram]:
    return zip(*(words[start:] for start in range(length)))


def _characters_a_word(words: list[str]) -> int:
    return 2 if sum(CJK.match(word) is not None for word in words) * 2 > len(words) else 1
