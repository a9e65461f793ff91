"""A corpus of one's own as the web: JSON lines searched with BM25, in BrowseComp-Plus's shape too."""

from dataclasses import dataclass
from pathlib import Path

import bm25s

from condensery.files.jsonl import BadLine, scan_jsonl
from data_synthesis.web import words

NAMES = ("docid", "id", "_id", "url")
TEXTS = ("text", "contents", "content")


@dataclass(frozen=True)
class Document:
    name: str
    url: str
    title: str
    text: str


class Corpus:
    """`documents` by name; `rejected` holds the lines that could not be used, by reason."""

    def __init__(self, path: Path) -> None:
        self.documents: dict[str, Document] = {}
        self.rejected: dict[str, list[int]] = {}
        for line, row in scan_jsonl(path):
            document = _read(row)
            if isinstance(document, Document) and document.name in self.documents:
                document = "a name that an earlier line has"
            if isinstance(document, str):
                self.rejected.setdefault(document, []).append(line)
            else:
                self.documents[document.name] = document
        if not self.documents:
            reasons = "; ".join(f"line {lines[0]}: {reason}" for reason, lines in self.rejected.items())
            raise ValueError(f"{path} holds no document ({reasons or 'it is empty'})")
        self.by_url = {each.url: each for each in self.documents.values() if each.url}
        self.names = list(self.documents)
        self.index = bm25s.BM25()
        texts = ([*words(each.title), *words(each.text)] for each in self.documents.values())
        self.index.index(list(texts), show_progress=False)

    def search(self, query: str, num_results: int) -> list[Document]:
        """The documents that share words with the query, best first."""
        known = [word for word in words(query) if word in self.index.vocab_dict]
        if not known:
            return []
        count = min(num_results, len(self.names))
        numbers, scores = self.index.retrieve([known], k=count, show_progress=False)
        return [
            self.documents[self.names[number]] for number, score in zip(numbers[0], scores[0]) if score > 0
        ]

    def get(self, name: str) -> Document | None:
        return self.documents.get(name) or self.by_url.get(name)


def passage_of(document: Document, query: str, num_characters: int = 400) -> str:
    """The part of a document with most of the query's words, as a search engine shows it."""
    wanted = set(words(query))
    step = num_characters // 2
    starts = range(0, max(1, len(document.text) - step), step)
    best = max(starts, key=lambda at: len(wanted & set(words(document.text[at : at + num_characters]))))
    return " ".join(document.text[best : best + num_characters].split())


def _read(row: dict | BadLine) -> Document | str:
    if isinstance(row, BadLine):
        return "not a JSON object"
    name = next((row[key] for key in NAMES if isinstance(row.get(key), str | int)), None)
    text = next((row[key] for key in TEXTS if isinstance(row.get(key), str) and row[key].strip()), None)
    if name is None or text is None:
        return f"no {' or '.join(NAMES) if name is None else ' or '.join(TEXTS)}"
    url, title = row.get("url"), row.get("title")
    return Document(
        str(name), url if isinstance(url, str) else "", title if isinstance(title, str) else "", text
    )
