"""The fields of `condensery record` that say where the agent searches and how it reads."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from condensery.endpoint import is_url

SERPER_KEY = "SERPER_API_KEY"
DEFAULT_URLS = {"serper": "https://google.serper.dev/search"}


@dataclass(kw_only=True)
class ToolConfig:
    """`web` is the offline web of `condensery web`; the others need no web."""

    search: Literal["web", "corpus", "serper", "searxng"] = field(
        default="web",
        metadata={
            "help": f"the offline web, a corpus, Google through Serper (${SERPER_KEY}), a SearXNG server"
        },
    )
    corpus: Path | None = field(
        default=None, metadata={"help": "JSONL with docid (or id, url) and text, searched with BM25"}
    )
    search_url: str | None = field(
        default=None, metadata={"help": "the SearXNG server's /search, or another address for Serper"}
    )
    reader: str | None = field(
        default=None, metadata={"help": "URL of an endpoint that reads pages for the agent's goal"}
    )
    reader_model: str | None = field(default=None, metadata={"help": "the model name at that endpoint"})
    reader_api_key_env: str = field(
        default="OPENAI_API_KEY", metadata={"help": "environment variable with the key"}
    )
    reader_window_tokens: int = field(
        default=16384, metadata={"help": "longer pages are read in pieces of this size", "minimum": 256}
    )
    max_result_tokens: int = field(
        default=4096, metadata={"help": "of a tool's result; more is excerpted, marked", "minimum": 64}
    )
    tool_cache: Path | None = field(
        default=None, metadata={"help": "file with all that was fetched (default: in output_dir)"}
    )
    requests_per_second: float = field(default=5.0, metadata={"help": "to search and pages, each"})
    tool_timeout_seconds: float = field(
        default=30.0, metadata={"help": "for one search or page, retries included", "minimum": 1}
    )

    def __post_init__(self) -> None:
        if self.search == "corpus" and self.corpus is None:
            raise ValueError("--search corpus needs --corpus, a JSONL file with docid and text")
        if self.search == "searxng" and self.search_url is None:
            raise ValueError("--search searxng needs --search_url, like http://localhost:8080/search")
        if self.search_url is not None and not is_url(self.search_url):
            raise ValueError(f"search_url is {self.search_url!r}; give a URL (http://...)")
        if self.search == "serper" and not os.environ.get(SERPER_KEY, "").strip():
            raise ValueError(f"--search serper needs a key in the environment variable {SERPER_KEY}")
        if self.reader is not None and not (is_url(self.reader) and self.reader_model):
            raise ValueError("--reader is the URL of an endpoint, with --reader_model")
        if not self.requests_per_second > 0:
            raise ValueError(f"requests_per_second is {self.requests_per_second:g}; it is above 0")
