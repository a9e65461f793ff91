"""`search` and `visit` over an offline web, with the arguments that web agents use (WebDancer, ReSum)."""

from condensery.files.jsonl import parse_json
from data_synthesis.web import Page, Web, words
from data_synthesis.web_vocabulary import load_vocabulary

SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the web; the best pages for each query, with the passages that match.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "array", "items": {"type": "string"}}},
                "required": ["query"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "visit",
            "description": "Read whole pages by their id (like p123).",
            "parameters": {
                "type": "object",
                "properties": {
                    "url": {"type": "array", "items": {"type": "string"}},
                    "goal": {"type": "string"},
                },
                "required": ["url", "goal"],
            },
        },
    },
]


class WebTools:
    """`top_k` results a query, each with its `num_sentences` best sentences."""

    schemas = SCHEMAS

    def __init__(self, web: Web, top_k: int = 3, num_sentences: int = 2) -> None:
        self.web, self.top_k, self.num_sentences = web, top_k, num_sentences
        self.forms = load_vocabulary(web.language)

    async def call(self, name: str, arguments: str) -> str:
        """The tool's answer. Raises ValueError, worded for the model, for a call that cannot be made."""
        values = read_arguments(name, arguments)
        if name == "search":
            return "\n".join(self._search(query) for query in values)
        return "\n".join(self._visit(url) for url in values)

    def _search(self, query: str) -> str:
        pages = self.web.search(query, self.top_k)
        rows = [self._row(page, best_sentences(page, query, self.num_sentences)) for page in pages]
        return "\n".join(rows) or self.forms["no_result"].format(query=query)

    def _visit(self, url: str) -> str:
        page = self.web.pages.get(url.strip("[] "))
        return (
            self._row(page, page.sentences) if page else f"No page {url!r}; use an id from a search result."
        )

    def _row(self, page: Page, sentences: list[str]) -> str:
        text = ("" if self.web.language == "zh" else " ").join(sentences)
        return self.forms["result"].format(
            id=page.id, title=page.title, site=page.site, year=page.year, text=text
        )


def read_arguments(name: str, arguments: str) -> list[str]:
    """The queries of a search or the urls of a visit; one string stands for a list of one."""
    key = {"search": "query", "visit": "url"}.get(name)
    if key is None:
        raise ValueError(f"unknown tool {name!r}; there are search and visit")
    try:
        value = parse_json(arguments)[key]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f'{name} needs a JSON object with "{key}", got {arguments[:200]!r}') from None
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise ValueError(f'"{key}" of {name} must be a list of strings, got {arguments[:200]!r}')
    return values


def best_sentences(page: Page, query: str, num_sentences: int) -> list[str]:
    """The sentences that match the query best, in the order of the page.

    A sentence is found by its words and by what it states ("Born in 1921, ..." states a birth year), as by a
    search engine that matches meaning.
    """
    wanted = set(words(query))

    def num_matches(sentence: str) -> int:
        stated = [fact.attribute for fact in page.facts if fact.stands_in(sentence)]
        return len(wanted & set(words(" ".join([sentence, *stated]))))

    ranked = sorted(page.sentences, key=num_matches, reverse=True)
    return [sentence for sentence in page.sentences if sentence in ranked[:num_sentences]]
