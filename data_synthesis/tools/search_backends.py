"""Search engines behind one shape: a query in, the best pages with a passage each out."""

import os
from typing import Any

from condensery.files.jsonl import parse_json
from data_synthesis.tools.http_client import BackendError, Fetched, HttpClient
from data_synthesis.tools.tool_config import DEFAULT_URLS, SERPER_KEY, ToolConfig

Result = dict[str, str]  # title, url, passage


async def search_serper(query: str, num_results: int, config: ToolConfig, client: HttpClient) -> list[Result]:
    """Google's results through serper.dev. The key is read now and kept nowhere."""
    headers = {"X-API-KEY": os.environ.get(SERPER_KEY, "").strip()}
    body = {"q": query, "num": num_results}
    url = config.search_url or DEFAULT_URLS["serper"]
    rows = _rows(await client.request("POST", url, headers=headers, json=body), "organic")
    return [_result(row, "link", "snippet") for row in rows[:num_results]]


async def search_searxng(
    query: str, num_results: int, config: ToolConfig, client: HttpClient
) -> list[Result]:
    """A SearXNG server of one's own, with `json` among its formats: free, no key."""
    parameters = {"q": query, "format": "json"}
    rows = _rows(await client.request("GET", config.search_url or "", params=parameters), "results")
    return [_result(row, "url", "content") for row in rows[:num_results]]


def _rows(fetched: Fetched, key: str) -> list[dict]:
    """The results of an answer; none at all is an answer, too. Raises BackendError."""
    try:
        answer = parse_json(fetched.content)
    except ValueError as error:
        raise BackendError(
            "bad_response", f"not JSON but {fetched.content_type or 'something else'}"
        ) from error
    rows = answer.get(key, []) if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BackendError("bad_response", f"no list of results under {key!r}")
    return rows


def _result(row: dict[str, Any], url: str, passage: str) -> Result:
    texts = {"title": row.get("title"), "url": row.get(url), "passage": row.get(passage)}
    return {name: text if isinstance(text, str) else "" for name, text in texts.items()}
