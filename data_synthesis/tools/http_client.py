"""HTTP for tools: paced, with a hard timeout, a cap on what is read, and retries of what can heal."""

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

import httpx2
import tenacity

Kind = Literal["auth", "not_found", "refused", "rate_limited", "server", "timeout", "connection", "too_large",
               "not_text", "bad_address", "bad_response"]  # fmt: skip
CAN_HEAL = {"rate_limited", "server", "timeout", "connection"}
MAX_BYTES = 4_000_000
MAX_REDIRECTS = 5
MAX_CONCURRENCY = 16


class BackendError(OSError):
    """What a search backend or a page's server did instead of answering."""

    def __init__(self, kind: Kind, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{kind.replace('_', ' ')}: {detail}")
        self.kind, self.retry_after = kind, retry_after


@dataclass(frozen=True)
class Fetched:
    url: str
    content: bytes
    content_type: str


class HttpClient:
    """Requests of one backend: `requests_per_second` at most, each done within `timeout_seconds`."""

    def __init__(self, requests_per_second: float, timeout_seconds: float, max_attempts: int = 3) -> None:
        self.interval, self.timeout_seconds = 1 / requests_per_second, timeout_seconds
        self.max_attempts = max_attempts
        self.num_requests = 0
        self._next_start = 0.0
        self._client: Any = None
        self._slots: asyncio.Semaphore | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        self._client = self._slots = None

    async def request(
        self, method: str, url: str, check: Callable[[str], None] | None = None, **settings: Any
    ) -> Fetched:
        """Raises BackendError. `check` raises it for an address that must not be asked, redirects too."""
        self._slots = self._slots or asyncio.Semaphore(MAX_CONCURRENCY)
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.max_attempts)
            | tenacity.stop_before_delay(self.timeout_seconds),
            wait=_wait,
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, BackendError) and error.kind in CAN_HEAL
            ),
            reraise=True,
        )
        async with self._slots:
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    async for attempt in retrying:
                        with attempt:
                            return await self._once(method, url, check, settings)
            except TimeoutError as error:
                raise BackendError("timeout", f"no answer in {self.timeout_seconds:g} seconds") from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(
        self, method: str, url: str, check: Callable[[str], None] | None, settings: dict[str, Any]
    ) -> Fetched:
        self._client = self._client or httpx2.AsyncClient(timeout=None, follow_redirects=False)
        for _ in range(MAX_REDIRECTS + 1):
            if check:
                await asyncio.get_running_loop().run_in_executor(None, check, url)
            await self._pace()
            self.num_requests += 1
            try:
                async with self._client.stream(method, url, **settings) as response:
                    # Only pages are followed: a key must not travel on to another host.
                    if response.is_redirect and "location" in response.headers and check:
                        url = urljoin(url, response.headers["location"])
                        continue
                    _check_status(response)
                    content = await _read(response)
                    return Fetched(url, content, response.headers.get("content-type", ""))
            except httpx2.InvalidURL as error:
                raise BackendError("bad_address", str(error)) from error
            except httpx2.HTTPError as error:
                kind: Kind = "bad_address" if isinstance(error, httpx2.UnsupportedProtocol) else "connection"
                raise BackendError(kind, str(error) or type(error).__name__) from error
        raise BackendError("bad_address", f"more than {MAX_REDIRECTS} redirects")

    async def _pace(self) -> None:
        now = time.monotonic()
        start = max(now, self._next_start)
        self._next_start = start + self.interval
        await asyncio.sleep(start - now)


def _wait(state: tenacity.RetryCallState) -> float:
    """What the server asks for, else doubling with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, BackendError) and error.retry_after is not None:
        return error.retry_after
    return tenacity.wait_random_exponential(multiplier=0.5, max=20)(state)


def _check_status(response: Any) -> None:
    status = response.status_code
    if status < 300:
        return
    kinds: dict[int, Kind] = {
        401: "auth",
        403: "auth",
        404: "not_found",
        410: "not_found",
        429: "rate_limited",
    }
    after = response.headers.get("retry-after", "")
    seconds = float(after) if re.fullmatch(r"\d+(\.\d+)?", after) else None
    kind = kinds.get(status, "server" if status >= 500 else "refused")
    raise BackendError(kind, f"HTTP status {status}", seconds)


async def _read(response: Any) -> bytes:
    content = b""
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_BYTES:
            raise BackendError("too_large", f"more than {MAX_BYTES} bytes")
    return content


def check_public(url: str) -> None:
    """Pages may talk an agent into any address: those of this machine and its network are not the web's.

    Raises BackendError.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BackendError("bad_address", f"{url[:200]!r} is no http address")
    try:
        found = socket.getaddrinfo(parts.hostname, None)
    except (OSError, UnicodeError) as error:
        raise BackendError("connection", f"no host {parts.hostname}") from error
    if not all(ipaddress.ip_address(address[4][0]).is_global for address in found):
        raise BackendError("bad_address", f"{parts.hostname} is not on the public web")
