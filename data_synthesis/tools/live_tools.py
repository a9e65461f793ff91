"""`search` and `visit` for an agent, over a live search engine or a corpus; each query and page by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from condensery.endpoint import Endpoint
from condensery.files.jsonl import parse_json
from condensery.reply import EndpointError
from condensery.tokens import Tokenizer
from data_synthesis.excerpt import excerpt
from data_synthesis.tools.corpus import Corpus, passage_of
from data_synthesis.tools.http_client import BackendError, HttpClient, check_public
from data_synthesis.tools.page_reader import read_for_goal, text_of
from data_synthesis.tools.search_backends import Result, search_searxng, search_serper
from data_synthesis.tools.tool_cache import ToolCache
from data_synthesis.tools.tool_config import ToolConfig
from data_synthesis.web_tools import SCHEMAS, read_arguments


class LiveTools:
    """`reader` reads pages for the agent's goal; without one they are excerpted."""

    schemas = SCHEMAS

    def __init__(
        self,
        config: ToolConfig,
        num_results: int,
        cache: ToolCache,
        reader: Endpoint | None = None,
        tokenizer: Tokenizer | None = None,
        check: Callable[[str], None] = check_public,
    ) -> None:
        self.config, self.num_results, self.cache = config, num_results, cache
        self.reader, self.tokenizer, self.check = reader, tokenizer, check
        self.corpus = Corpus(config.corpus) if config.search == "corpus" and config.corpus else None
        settings = (config.requests_per_second, config.tool_timeout_seconds)
        self.searching, self.fetching = HttpClient(*settings), HttpClient(*settings)

    async def close(self) -> None:
        await asyncio.gather(self.searching.close(), self.fetching.close())
        if self.reader:
            await self.reader.close()
        self.cache.close()

    async def start(self) -> None:
        """One search, so that a wrong key or address is known before a run. Raises BackendError."""
        try:
            if not self.corpus:
                await self._ask_engine("condensery")
        finally:
            await self.searching.close()  # the run has an event loop of its own

    async def call(self, name: str, arguments: str) -> str:
        """The tool's answer. Raises ValueError, worded for the model, for a call that cannot be made."""
        values = read_arguments(name, arguments)
        goal = str(parse_json(arguments).get("goal") or "") if name == "visit" else ""
        parts = await asyncio.gather(
            *(self._found(value) if name == "search" else self._visited(value, goal) for value in values)
        )
        room = max(64, self.config.max_result_tokens // max(1, len(parts)))
        return "\n\n".join(excerpt(part, room, self.tokenizer)[0] for part in parts)

    async def _found(self, query: str) -> str:
        """A query that fails, fails alone."""
        try:
            results = await self._search(query)
        except BackendError as error:
            return f"Search for {query!r} failed: {error}"
        rows = [f"[{row['url']}] {row['title']}: {row['passage']}" for row in results]
        return "\n".join([f"Results for {query!r}:", *rows]) if rows else f"No results for {query!r}."

    async def _search(self, query: str) -> list[Result]:
        if self.corpus:
            found = self.corpus.search(query, self.num_results)
            return [
                {"url": each.name, "title": each.title, "passage": passage_of(each, query)} for each in found
            ]
        request = [self.config.search, self.config.search_url, query, self.num_results]
        return await self._cached(request, lambda: self._ask_engine(query))

    async def _ask_engine(self, query: str) -> list[Result]:
        search = search_serper if self.config.search == "serper" else search_searxng
        return await search(query, self.num_results, self.config, self.searching)

    async def _visited(self, url: str, goal: str) -> str:
        try:
            text = await self._text(url.strip("[] "))
        except BackendError as error:
            return f"Page {url!r} could not be read: {error}"
        if self.reader is None:
            return f"[{url}] {text}"
        reader = self.reader
        request = ["reader", reader.model, text, goal, self.config.reader_window_tokens]
        try:
            extract = await self._cached(
                request,
                lambda: read_for_goal(text, goal, reader, self.config.reader_window_tokens, self.tokenizer),
            )
        except EndpointError as error:
            return f"[{url}] (as it stands; the reader failed: {error.kind}) {text}"
        return f"[{url}] {extract}" if extract else f"[{url}] Nothing on the page bears on {goal!r}."

    async def _text(self, url: str) -> str:
        if self.corpus:
            document = self.corpus.get(url)
            if document is None:
                raise BackendError("not_found", "no document of that name; use one from a search result")
            return document.text

        async def fetch() -> str:
            return text_of(await self.fetching.request("GET", url, self.check))

        return await self._cached(["page", url], fetch)

    async def _cached(self, request: list, make: Callable[[], Awaitable[Any]]) -> Any:
        return await self.cache.get(request, make)


def build_tools(config: Any, tokenizer: Tokenizer | None) -> LiveTools:
    """The tools of a `RecordConfig`. Raises ValueError or OSError for a corpus that cannot be read."""
    reader = config.endpoint("reader", temperature=0.0, max_tokens=config.max_result_tokens)
    cache = ToolCache(config.tool_cache or Path(config.output_dir) / "tool_cache.sqlite")
    return LiveTools(config, config.search_results, cache, reader if config.reader else None, tokenizer)
