"""One client for every OpenAI-compatible endpoint: explorer, teacher, judge, served summarizer.

A call ends within `timeout_seconds`, retries and waits included, in a `Reply` or in an `EndpointError` with a
kind. Only what can heal is tried again, never a refused request. Errors of the server are errors here: they
never become text of the model.
"""

import asyncio
import os
import re
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

import tenacity

from condensery.reply import EndpointError, Kind, Reply, read_completion

CAN_HEAL = {"rate_limited", "server", "timeout", "connection", "empty_choices"}
STATUS_KINDS: dict[int, Kind] = {
    401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 409: "server", 413: "context_length",
    425: "server", 429: "rate_limited",
}  # fmt: skip
TOO_LONG = re.compile(
    r"context.?(?:length|window|size)|maximum (?:model|input|prompt|sequence) length|max_model_len"
    r"|(?:prompt|input|request) is too (?:long|large)|too many (?:input )?tokens",
    re.IGNORECASE,
)


def is_url(text: str) -> bool:
    try:
        url = urllib.parse.urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        return False


@dataclass
class Endpoint:
    """`url` is the base (`http://host/v1`) or the full chat-completions URL.

    The key is read from the environment variable `api_key_env` and kept out of every file; local servers need
    none. `sampling` goes with every request.
    """

    url: str
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    timeout_seconds: float = 600.0
    max_attempts: int = 4
    max_concurrency: int = 16
    backoff_seconds: float = 1.0
    sampling: dict[str, Any] = field(default_factory=dict)
    _client: Any = None
    _slots: asyncio.Semaphore | None = None

    async def chat(self, messages: list[dict], tools: list[dict] | None = None, **sampling: Any) -> Reply:
        """One chat completion. Raises EndpointError. Waiting for a free slot is outside the timeout."""
        body: dict[str, Any] = {"model": self.model, "messages": messages} | self.sampling | sampling
        if tools:
            body["tools"] = tools
        # Made here, inside the loop that will wait on it.
        self._slots = self._slots or asyncio.Semaphore(self.max_concurrency)
        async with self._slots:
            return await self._with_retries(body)

    async def check(self, timeout_seconds: float = 15.0) -> None:
        """Raises EndpointError unless this endpoint is up, takes our key and serves the model.

        A server that does not list the model (an alias, or no `/models` at all) is asked for one token.
        """
        try:
            await self._check(timeout_seconds)
        finally:
            await self.close()

    async def close(self) -> None:
        """Connections belong to the event loop they were opened in; the next call opens new ones."""
        if self._client is not None:
            await self._client.close()
        self._client = self._slots = None

    async def _check(self, timeout_seconds: float) -> None:
        models = self._open().models.with_raw_response
        try:
            async with asyncio.timeout(timeout_seconds):
                listed = (await models.list()).http_response.json()
            if self.model in _model_ids(listed):
                return
        except Exception as error:
            if (known := classify(error)).kind not in ("not_found", "bad_response"):
                raise known from error
        try:
            body = {"model": self.model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            await self._once(body, timeout_seconds, attempts=1)
        except EndpointError as error:
            if error.kind not in ("empty_choices", "content_filter"):
                raise

    async def _with_retries(self, body: dict[str, Any]) -> Reply:
        self._open()  # importing the client may take seconds, which are not the server's
        started = time.monotonic()
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.max_attempts)
            | tenacity.stop_before_delay(self.timeout_seconds),
            wait=self._wait,
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, EndpointError) and error.kind in CAN_HEAL
            ),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                remaining = self.timeout_seconds - (time.monotonic() - started)
                return await self._once(body, remaining, attempt.retry_state.attempt_number)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(self, body: dict[str, Any], timeout_seconds: float, attempts: int) -> Reply:
        create = self._open().chat.completions.with_raw_response.create
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout_seconds):
                # As `extra_body`, servers' own settings (top_k, min_p, ...) pass too, and the client does not
                # walk through each message of the history, which costs more than all else it does.
                raw = await create(model=self.model, messages=[], extra_body=body)
                completion = raw.http_response.json()
        except Exception as error:
            known = classify(error)
            known.attempts = attempts
            raise known from error
        return read_completion(completion, time.monotonic() - started, attempts)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """What the server asks for, else doubling with jitter."""
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, EndpointError) and error.retry_after is not None:
            return error.retry_after
        return tenacity.wait_random_exponential(multiplier=self.backoff_seconds, max=60)(state)

    def _open(self) -> Any:
        if self._client is None:
            import openai  # a second of import time

            url = self.url.rstrip("/").removesuffix("/chat/completions")
            # A line break from a file is common, and the HTTP client would print the key with its complaint.
            key = os.environ.get(self.api_key_env, "").strip() or "none"
            if not re.fullmatch(r"[!-~]+", key):
                raise EndpointError(
                    "auth", f"the key in ${self.api_key_env} holds characters that no key has"
                )
            self._client = openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=None)
        return self._client


def _model_ids(listed: Any) -> list[Any]:
    models = listed.get("data") if isinstance(listed, dict) else None
    return (
        [model.get("id") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    )


def classify(error: Exception) -> EndpointError:
    """Our error for whatever the client library or the connection raised; programming errors pass through."""
    import openai

    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return EndpointError("timeout", "no answer in time")
    if isinstance(error, openai.APIStatusError):
        after = error.response.headers.get("retry-after", "")
        seconds = float(after) if re.fullmatch(r"\d+(\.\d+)?", after) else None
        return EndpointError(_status_kind(error.status_code, str(error)), str(error), seconds)
    if isinstance(error, openai.APIConnectionError):
        return EndpointError("connection", str(error.__cause__ or error))
    if isinstance(error, ValueError | RecursionError):  # a body that is not JSON, or "[" without end
        return EndpointError("bad_response", f"not a chat completion: {error}")
    raise error


def _status_kind(status: int, text: str) -> Kind:
    if status in (400, 413, 422):
        if "content_filter" in text:
            return "content_filter"
        return "context_length" if status == 413 or TOO_LONG.search(text) else "bad_request"
    return STATUS_KINDS.get(status, "server" if status >= 500 else "bad_request")
