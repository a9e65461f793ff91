"""A summarizer without a model: sentences of the history that bear on the task, copied with their sources.

It is a baseline and says so (author "extractive"). A unit of text (a sentence, a line, a piece of a long one)
scores the weights of its terms: inverse frequency in this history, times how the term is known to matter (it
stands in the task, in a call, in a thought). Units are taken best first; a term that the summary holds
already counts little the second time. They are written in the order of the history, with their sources,
below the calls that the agent made, so that it does not make them again.
"""

import heapq
import math
import re
from collections import Counter
from dataclasses import dataclass

from condensery.compaction import Compaction
from condensery.facts import split_sentences
from condensery.message import Message
from condensery.tokens import CJK, Tokenizer, count_tokens
from condensery.trajectory import Cut

AUTHOR = "extractive"
TASK_WEIGHT, CALL_WEIGHT, THOUGHT_WEIGHT, OTHER_WEIGHT = 3.0, 2.0, 1.0, 0.2
REPEATED_SHARE = 0.25  # of its weight, for a term that is in the summary already
CARRY_OVER = 1.5  # a statement of the last summary was found worth keeping once
ROLE_BOOST = {
    "user": 1.5,
    "tool": 1.0,
    "assistant": 0.7,
    "system": 0.7,
}  # people state constraints, agents talk
MAX_UNIT_TOKENS, MIN_UNIT_TERMS = 64, 3
CALLS_SHARE = 1 / 3  # of the summary, at most, for calls

URL = re.compile(r"https?://(?:[^\s()\[\]<>\"'，。、）]|\([^\s()]*\))+(?<![.,;:])")
WORD = re.compile(r"[a-z0-9][a-z0-9'_.-]*[a-z0-9]|[a-z0-9]")
MARKUP = re.compile(r"^(?:[#>*•\-]+\s+|\d+[.)]\s+|\[\d+\]\s+)+|\*\*|`")
LINK = re.compile(rf"\[([^\[\]]*)\]\({URL.pattern}\)")
NOISE = re.compile(
    r"^(?:date published|source|observation|web results|a google search for)\b|^\[\.\.\. \d+ tokens left out",
    re.I,
)
STOPWORDS = frozenset(
    """
    a about after all also an and any are as at be been but by can could did do does for from had has
    have he her his how i if in into is it its let may me more most my no not of on one only or other
    our out over s she should so some such t than that the their them then there these they this to up
    us use using was we were what when where which while who why will with would you your okay need
    check find information search
    """.split()
)


@dataclass(frozen=True)
class Unit:
    """A piece of text that is taken whole or not at all, with the id of where it stands."""

    order: int
    text: str
    source: str
    terms: frozenset[str]
    boost: float = 1.0


async def summarize_extractively(compaction: Compaction, max_tokens: int, tokenizer: Tokenizer | None) -> Cut:
    text = extract(compaction, max_tokens, tokenizer)
    raw = f"<summary>\n{text}\n</summary>" if text else ""
    return Cut(position=0, summary=text or None, failure=None if text else "empty", raw=raw, author=AUTHOR)


def extract(compaction: Compaction, max_tokens: int, tokenizer: Tokenizer | None) -> str:
    """The summary's text, at most `max_tokens`; empty when the history holds neither sentence nor call."""
    units = read_units(compaction, tokenizer)
    weights = term_weights(compaction, units)
    calls = call_lines(compaction, int(CALLS_SHARE * max_tokens), tokenizer)
    chosen: list[Unit] = []
    seen: set[str] = set()
    heap = [(-_score(unit, weights, seen), unit.order) for unit in units]
    heapq.heapify(heap)
    while heap:
        best = units[heapq.heappop(heap)[1]]
        # Scores only fall while the summary grows: who still beats the next one's old score is the best.
        score = (-_score(best, weights, seen), best.order)
        if heap and score > heap[0]:
            heapq.heappush(heap, score)
            continue
        if count_tokens(write_out(calls, [*chosen, best]), tokenizer) <= max_tokens:
            chosen.append(best)
            seen |= best.terms
        # What is left of the budget is tried with shorter units, but not to the last token.
        elif count_tokens(write_out(calls, chosen), tokenizer) > 0.8 * max_tokens:
            break
    return write_out(calls, chosen)


def call_lines(compaction: Compaction, max_tokens: int, tokenizer: Tokenizer | None) -> list[str]:
    """The calls of this history as the summarizer reads them, a line each: the newest of those that fit."""
    calls = [call.function for message in compaction.expired for call in message.tool_calls]
    texts = dict.fromkeys(" ".join(f"{call.name}({call.arguments})".split()) for call in reversed(calls))
    lines: list[str] = []
    for line in (f"- {text}" for text in texts):
        if count_tokens("\n".join([line, *lines]), tokenizer) <= max_tokens:
            lines.insert(0, line)
    return lines


def _score(unit: Unit, weights: dict[str, float], seen: set[str]) -> float:
    # The order of a set differs between processes; fsum rounds once, so that ties fall the same way in all.
    gain = math.fsum(weights[term] * (REPEATED_SHARE if term in seen else 1.0) for term in unit.terms)
    return unit.boost * gain / math.sqrt(len(unit.terms) + 4)


def write_out(calls: list[str], units: list[Unit]) -> str:
    """Calls, then units in the order of the history, each with its source where the next has another."""
    ordered = sorted(units, key=lambda unit: unit.order)
    lines = list(calls)
    for unit, following in zip(ordered, [*ordered[1:], None]):
        ends = following is None or following.source != unit.source
        lines.append(f"- {unit.text}" + (f" [{unit.source}]" if unit.source and ends else ""))
    return "\n".join(lines)


def term_weights(compaction: Compaction, units: list[Unit]) -> dict[str, float]:
    frequency = Counter(term for unit in units for term in unit.terms)
    task = terms_of(compaction.task)
    calls = terms_of(" ".join(call.function.arguments for m in compaction.expired for call in m.tool_calls))
    thoughts = terms_of(" ".join(m.reasoning_content or "" for m in compaction.expired))
    kinds = [(task, TASK_WEIGHT), (calls, CALL_WEIGHT), (thoughts, THOUGHT_WEIGHT)]
    return {
        term: (OTHER_WEIGHT + sum(weight for terms, weight in kinds if term in terms))
        * math.log(1 + len(units) / count)
        for term, count in frequency.items()
    }


def terms_of(text: str) -> frozenset[str]:
    """Lower-case words that are no function words, and pairs of neighbouring CJK characters."""
    lowered = URL.sub(" ", text).lower()
    runs = re.findall(rf"{CJK.pattern}{{2,}}", lowered)
    pairs = {run[start : start + 2] for run in runs for start in range(len(run) - 1)}
    return frozenset({word for word in WORD.findall(lowered) if word not in STOPWORDS} | pairs)


def read_units(compaction: Compaction, tokenizer: Tokenizer | None) -> list[Unit]:
    """Candidates in order: the lines of the last summary, then what tools and people said, then the agent."""
    units: dict[str, Unit] = {}
    pieces = [(text, source, CARRY_OVER) for text, source in _summary_lines(compaction.last_summary or "")]
    pieces += [
        (piece, source, ROLE_BOOST[message.role])
        for message, source in _with_sources(compaction.expired)
        for text, source in _sentences(message.content, source)
        for piece in _split_long(text, tokenizer)
    ]
    for text, source, boost in pieces:
        terms = terms_of(text)
        if len(terms) >= MIN_UNIT_TERMS and text not in units:
            units[text] = Unit(len(units), text, source, terms, boost)
    return list(units.values())


def _summary_lines(summary: str) -> list[tuple[str, str]]:
    """Statements of an earlier summary with their sources; a line without one shares the next one's."""
    lines: list[tuple[str, str]] = []
    source = ""
    for line in reversed([line.strip().removeprefix("- ") for line in summary.splitlines() if line.strip()]):
        found = re.fullmatch(r"(.*) \[([^\]\s]+)\]", line)
        source = found[2] if found else source
        lines.append((found[1] if found else line, source))
    return lines[::-1]


def _with_sources(messages: list[Message]) -> list[tuple[Message, str]]:
    """Each message with the id of what it answers: the page that was asked for, or the tool's name."""
    calls = {call.id: call for message in messages for call in message.tool_calls}
    pairs = []
    for message in messages:
        call = calls.get(message.tool_call_id or "")
        url = URL.search(call.function.arguments) if call else None
        pairs.append((message, url[0] if url else call.function.name if call else message.role))
    return pairs


def _sentences(text: str, source: str) -> list[tuple[str, str]]:
    """Sentences and lines without their markup; a link names the source of what follows it."""
    found = []
    for line in _flatten(text).splitlines():
        url = URL.search(line)
        source = url[0] if url else source
        clean = MARKUP.sub("", LINK.sub(r"\1", line.strip())).strip()
        if not NOISE.search(clean):
            found += [(sentence, source) for sentence in split_sentences(clean)]
    return found


def _flatten(text: str) -> str:
    """A JSON result with each object on a line of its own, copied as it stands otherwise."""
    if not re.match(r"[\[{]+\"", text):
        return text
    return re.sub(r"(?<=[}\]]), (?=[\[{\"])|(?<=: )(?=[{\[]+\")", "\n", text)


def _split_long(text: str, tokenizer: Tokenizer | None) -> list[str]:
    """Pieces of a long sentence, split at its commas and semicolons."""
    if count_tokens(text, tokenizer) <= MAX_UNIT_TOKENS:
        return [text]
    pieces = [""]
    for part in re.split(r"(?<=[,;，；、])\s*", text):
        joined = f"{pieces[-1]} {part}".strip()
        if count_tokens(joined, tokenizer) <= MAX_UNIT_TOKENS:
            pieces[-1] = joined
        else:
            pieces.append(part)
    return [piece for piece in pieces if piece and count_tokens(piece, tokenizer) <= 2 * MAX_UNIT_TOKENS]
