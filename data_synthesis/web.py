"""The offline web: pages that state known facts, searched with BM25, so that rollouts can be checked
without a hub.

condensery web --output_dir runs/web --num_questions 200 --seed 1
"""

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import bm25s
from pydantic import BaseModel, ConfigDict

from condensery.facts import Fact
from condensery.files.jsonl import read_jsonl, read_records
from condensery.message import Message
from data_synthesis.question import Question, question_from_row

PAGE_ID = re.compile(r"\[(p\d+)\]")
WORD = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")


class Page(BaseModel):
    """`facts` are what the sentences state, true or not; `kind` says how they relate to the truth."""

    model_config = ConfigDict(extra="forbid")
    id: str
    kind: str
    title: str
    site: str
    year: int
    sentences: list[str]
    facts: list[Fact]


class Web:
    """Pages by id, with a search index built on first use."""

    def __init__(self, pages: Iterable[Page], language: str) -> None:
        self.pages = {page.id: page for page in pages}
        self.in_order = list(self.pages.values())
        self.language = language

    @cached_property
    def _index(self) -> bm25s.BM25:
        index = bm25s.BM25()
        texts = [words(" ".join([page.title, *page.sentences])) for page in self.pages.values()]
        index.index(texts, show_progress=False)
        return index

    def search(self, query: str, top_k: int) -> list[Page]:
        """The pages that share words with `query`, best first, at most `top_k`."""
        query_words = [word for word in words(query) if word in self._index.vocab_dict]
        if not query_words:
            return []
        count = min(top_k, len(self.in_order))
        numbers, scores = self._index.retrieve([query_words], k=count, show_progress=False)
        return [self.in_order[number] for number, score in zip(numbers[0], scores[0]) if score > 0]

    def facts_of(self, question: Question, messages: list[Message]) -> list[Fact]:
        """The truth about a run: the question's facts (must keep), all else its pages said (distractors)."""
        must_keep = list(question.facts or [])
        wanted = {(fact.subject, fact.value) for fact in must_keep}
        # "The mayor of A is B" cannot be told from "B was born in A" by subject and value.
        wanted |= {(value, subject) for subject, value in wanted}
        distractors: dict[tuple[str, str], Fact] = {}
        for page_id in dict.fromkeys(
            PAGE_ID.findall("\n".join(m.content for m in messages if m.role == "tool"))
        ):
            for fact in self.pages[page_id].facts if page_id in self.pages else []:
                if (fact.subject, fact.value) not in wanted:
                    distractors[fact.subject, fact.value] = fact.model_copy(update={"must_keep": False})
        return must_keep + list(distractors.values())


def words(text: str) -> list[str]:
    """Search terms: ASCII words, and for CJK text, which has no spaces, neighbouring pairs of characters."""
    terms = WORD.findall(text.casefold())
    pairs = [a + b for a, b in zip(terms, terms[1:]) if not a.isascii() and not b.isascii()]
    return [term for term in terms if term.isascii()] + pairs


def load_web(directory: Path | str) -> Web:
    """A web written by `condensery web`."""
    if not (Path(directory) / "pages.jsonl").is_file():
        raise ValueError(f"no web in {directory}: it has no pages.jsonl; `condensery web` writes one")
    pages = list(read_records(Path(directory) / "pages.jsonl", Page))
    if not pages:
        raise ValueError(f"{directory}/pages.jsonl holds no page")
    return Web(pages, "zh" if any("\u4e00" <= c <= "\u9fff" for c in pages[0].title) else "en")


def load_questions(directory: Path | str) -> list[Question]:
    return [question_from_row(row) for row in read_jsonl(Path(directory) / "questions.jsonl")]
