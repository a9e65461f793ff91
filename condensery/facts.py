"""Facts that can be checked in text without a model: what a summary kept, and what it states without ground.

A fact is kept when its value stands in the same line or sentence as its subject, numbers and dates
normalised. A statement is unsupported when one of its values stands nowhere in the history together with
that subject.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from condensery.tokens import CJK

MONTHS = "january february march april may june july august september october november december".split()
MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS)
DATE_FORMS = [  # each with year, month, day in named groups
    re.compile(rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<m>{MONTH})\.?,? (?P<y>\d{{4}})"),
    re.compile(rf"(?P<m>{MONTH})\.? (?P<d>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y>\d{{4}})"),
    re.compile(r"(?P<y>\d{4})\s?年\s?(?P<m>\d{1,2})\s?月\s?(?P<d>\d{1,2})\s?日"),
    re.compile(r"\b(?P<y>\d{4})[/.](?P<m>\d{1,2})[/.](?P<d>\d{1,2})\b"),
]
# No sentence ends after an initial or a title: "J. Frost", "St. Mary".
SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St|No|vs)\.)(?<!\bMrs\.)\s+(?=[^a-z])|(?<=[。！？])|\n"
)
NUMBER = re.compile(r"(?<![\w.-])\d{4}-\d{2}-\d{2}(?![\w-])|(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
CJK_NUMBER = re.compile(r"(?<![\da-z.])\d+(?:\.\d+)?")
QUOTE = re.compile(r"[\"“「『]([^\"“”「」『』\n]{3,})[\"”」』]")
# What must be copied to the letter to be of use. Each form starts where nothing of its own kind stands before
# it: tried at every character, a blob of 100,000 would take minutes.
IDENTIFIER = re.compile(
    r"https?://[^\s)\]>\"']+"
    r"|(?<![\w./-])(?:[\w.-]*/)+[\w.-]+"  # paths
    r"|\b[a-zA-Z]\w*_\w+\b"  # snake_case
    r"|\b[a-z]+[A-Z]\w*\b"  # camelCase
    r"|(?<!\d,)(?<![\w-])(?!\d+(?:st|nd|rd|th)\b)(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w[\w-]+\b"  # codes
)
NAME = re.compile(r"(?<![\w’'-])[A-Z][\w’'-]+(?: (?:of |de |the |van |von )?[A-Z][\w’'-]+)+")


class Fact(BaseModel):
    """(subject, attribute, value) as `source` states it, under `condition`; `must_keep` or else a distractor.

    `aliases` are other surface forms of the value that count as equal ("44,120 people" for "44120").
    """

    model_config = ConfigDict(extra="forbid")
    subject: str
    attribute: str
    value: str
    source: str | None = None
    condition: str | None = None
    must_keep: bool = True
    aliases: list[str] = []

    def stands_in(self, text: str) -> bool:
        """Whether some line or sentence of `text` holds the value (or an alias of it) and the subject."""
        return any(
            contains(unit, self.subject)
            and any(contains(unit, value) for value in [self.value, *self.aliases])
            for unit in _units(text)
        )


def normalize(text: str) -> str:
    """One surface form: NFKC, lower case, dates as YYYY-MM-DD, digits without thousands separators."""
    # Sentences and values come again and again; of whole histories only the present one does.
    return _normalize_short(text) if len(text) < 2000 else _normalize_long(text)


def _normalize(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    for form in DATE_FORMS:
        text = form.sub(_iso_date, text)
    text = re.sub(r"(?<=\d)[,\u00a0\u202f'](?=\d{3}(?!\d))", "", text)
    return re.sub(r"[ \t]+", " ", text)


_normalize_short, _normalize_long = lru_cache(maxsize=4096)(_normalize), lru_cache(maxsize=2)(_normalize)


def _iso_date(match: re.Match[str]) -> str:
    month = match["m"]
    number = int(month) if month.isdigit() else 1 + [name[:3] for name in MONTHS].index(month[:3])
    return f"{match['y']}-{number:02d}-{int(match['d']):02d}"


def split_sentences(text: str) -> list[str]:
    return [unit.strip() for unit in SENTENCE_END.split(text) if unit and unit.strip()]


# All facts of a compaction are looked for in the same text.
_units = lru_cache(maxsize=2)(split_sentences)


def contains(text: str, value: str) -> bool:
    """Whether `value` stands in `text` as a whole: 1921 is not in 19210 nor in 1,921, nor Ann in Annex."""
    return bool(_whole(normalize(value).strip()).search(normalize(text)))


@lru_cache(maxsize=4096)
def _whole(value: str) -> re.Pattern[str]:
    """CJK text has no word borders, so only ASCII edges are held apart from their neighbours."""
    before = r"(?<![a-z0-9])" if re.match(r"[a-z0-9]", value) else ""
    after = r"(?![a-z0-9])" if re.search(r"[a-z0-9]$", value) else ""
    before += r"(?<!\d[.,])" if value[:1].isdigit() else ""
    after += r"(?![.,]\d)" if value[-1:].isdigit() else ""
    return re.compile(before + re.escape(value) + after)


def recall(summary: str, facts: Iterable[Fact]) -> tuple[int, int]:
    """(must-keep facts that stand in the summary, must-keep facts)."""
    must_keep = [fact for fact in facts if fact.must_keep]
    return sum(fact.stands_in(summary) for fact in must_keep), len(must_keep)


def num_distractors(summary: str, facts: Iterable[Fact]) -> int:
    """How many facts that nobody needs were carried over."""
    return sum(not fact.must_keep and fact.stands_in(summary) for fact in facts)


def values_in(statement: str) -> list[str]:
    """Values of a statement that are right or wrong to the letter: numbers, dates, identifiers, names."""
    plain = normalize(statement)
    numbers = NUMBER.findall(plain)
    if not numbers and CJK.search(plain):  # no border between a number and the word after it
        numbers = CJK_NUMBER.findall(plain)
    return [*numbers, *IDENTIFIER.findall(statement), *QUOTE.findall(statement), *NAME.findall(statement)]


def unsupported(summary: str, history: str, subjects: Iterable[str] = ()) -> tuple[int, int]:
    """(statements with a value that the history does not hold, statements with a value).

    A statement about one of the known `subjects` needs each value in one sentence with that subject; about
    anything else, anywhere in the history.
    """
    units = split_sentences(history)
    known = list(subjects)
    num_bad = num_checked = 0
    for statement in split_sentences(summary):
        values = dict.fromkeys(values_in(statement))
        about = [name for name in known if contains(statement, name)]
        num_checked += bool(values)
        num_bad += any(not _is_grounded(value, about, units) for value in values)
    return num_bad, num_checked


def _is_grounded(value: str, about: list[str], units: list[str]) -> bool:
    # A true number next to the wrong name is an invention, so the sentence that holds it must hold the name.
    holding = [unit for unit in units if contains(unit, value)]
    if not about or any(contains(name, value) or contains(value, name) for name in about):
        return bool(holding)
    return any(contains(unit, name) for unit in holding for name in about)
