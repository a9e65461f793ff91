"""Record an agent that runs as it is: a proxy in front of the endpoint it uses.

    condensery capture --upstream https://api.openai.com/v1 --output_dir runs/capture --port 8900
    OPENAI_BASE_URL=http://127.0.0.1:8900/v1 python my_agent.py
    condensery import runs/capture/conversations.jsonl --output_dir runs/import

Requests and answers pass through as they are, streams as they come. Each chat exchange is a row of
`exchanges.jsonl` before its end reaches the agent, so that a kill loses none that was answered. At the end,
and at the next start with --resume, `conversations.jsonl` is derived from them. Keys are passed on and stored
nowhere. Exit status: 0; 2 when not even started.
"""

import asyncio
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from condensery.endpoint import is_url
from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import JsonlAppender, parse_json, scan_jsonl, write_jsonl
from condensery.files.run_directory import describe_run, open_run_directory
from data_synthesis.exchange import Exchange, Exchanges, read_answer

PROG = "condensery capture"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
# Of one connection, not of the message; and an answer that is compressed could not be read here.
NOT_PASSED = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding"}


@dataclass
class CaptureConfig:
    """Which endpoint to stand in front of, and where."""

    upstream: str = field(metadata={"help": "base URL of the endpoint, like https://api.openai.com/v1"})
    output_dir: Path = field(metadata={"help": "where exchanges and conversations go"})
    host: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    port: int = field(default=8900, metadata={"help": "port to listen on", "minimum": 0})
    resume: bool = field(default=False, metadata={"help": "add to the capture in output_dir"})

    def __post_init__(self) -> None:
        parts = urlsplit(self.upstream)
        if not is_url(self.upstream):
            raise ValueError(f"upstream is {self.upstream!r}; give the URL of an endpoint (http://...)")
        # The command line is stored with the run.
        if parts.username or parts.password or parts.query:
            raise ValueError("upstream holds a key or a query; keys belong into the agent's own requests")


def main(argv: Sequence[str] | None = None) -> int:
    example = f"{PROG} --upstream https://api.openai.com/v1 --output_dir runs/capture"
    config = parse_args(CaptureConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    try:
        directory = open_run_directory(config.output_dir, config.resume)
        describe_run(directory, resolved_config(config))
        with JsonlAppender(directory / "exchanges.jsonl") as rows:
            exchanges = load_exchanges(directory)
            write_conversations(directory, exchanges)
            serve(config, exchanges, rows.append)
            write_conversations(directory, exchanges)
    except (OSError, ValueError) as error:
        fail(PROG, " ".join(str(error).split()))
    counts = Counter(exchange.outcome for exchange in exchanges.all)
    describe_run(directory, resolved_config(config), counts=dict(counts))
    for outcome, number in counts.most_common():
        print(f"exchanges {number:6}  {outcome}")
    print(f"{directory / 'conversations.jsonl'}: {len(exchanges.conversations())} conversations")
    return 0


def load_exchanges(directory: Path) -> Exchanges:
    exchanges = Exchanges()
    for _, row in scan_jsonl(directory / "exchanges.jsonl"):
        if isinstance(row, dict):
            exchanges.add(Exchange.model_validate(row))
    return exchanges


def write_conversations(directory: Path, exchanges: Exchanges) -> None:
    write_jsonl(directory / "conversations.jsonl", exchanges.conversations())


def serve(config: CaptureConfig, exchanges: Exchanges, append: Callable[[dict], None]) -> None:
    """Until SIGINT or SIGTERM. Raises OSError when the port is taken."""

    def keep(exchange: Exchange) -> None:
        append(exchange.model_dump(exclude_none=True))
        exchanges.add(exchange)

    proxy = Proxy(config.upstream.rstrip("/"), exchanges, keep)
    app = Starlette(routes=[Route("/{path:path}", proxy.handle, methods=METHODS)])
    # Its own logging set-up would close the handlers of whatever else is loaded.
    settings = uvicorn.Config(app, log_config=None, log_level="critical", timeout_graceful_shutdown=2)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.create_server((config.host, config.port), family=family)
    shown = f"[{config.host}]" if ":" in config.host else config.host
    print(f"OPENAI_BASE_URL=http://{shown}:{listening.getsockname()[1]}/v1", flush=True)
    # The server hands its signals on when it has shut down; what follows is ours to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    uvicorn.Server(settings).run(sockets=[listening])


class Proxy:
    """Passes requests on to `upstream`, and hands each finished chat exchange to `keep`."""

    def __init__(self, upstream: str, exchanges: Exchanges, keep: Callable[[Exchange], None]) -> None:
        self.upstream, self.exchanges, self.keep = upstream, exchanges, keep
        # How long to wait is the agent's to decide.
        self.client = httpx2.AsyncClient(timeout=httpx2.Timeout(None, connect=10), follow_redirects=False)

    async def handle(self, request: Request) -> Response:
        body = await request.body()
        path = "/" + request.path_params["path"].removeprefix("v1").lstrip("/")
        is_chat = request.method == "POST" and path == "/chat/completions"
        record = Recording(self, body) if is_chat else None
        sent = self.client.build_request(
            request.method,
            self.upstream + path,
            params=str(request.query_params),
            headers=[(name, value) for name, value in request.headers.items() if name not in NOT_PASSED]
            + [("accept-encoding", "identity")],
            content=body,
        )
        answer = await self._send(sent, request)
        if isinstance(answer, str):
            if record:
                record.end(answer)
            return Response(f"{PROG}: {answer} at {self.upstream}", status_code=502)
        headers = {name: value for name, value in answer.headers.items() if name not in NOT_PASSED}
        if "text/event-stream" in answer.headers.get("content-type", ""):
            return StreamingResponse(self._stream(answer, record), answer.status_code, headers)
        try:
            content = await answer.aread()
        except httpx2.HTTPError:
            if record:
                record.end("incomplete")
            return Response(f"{PROG}: half an answer from {self.upstream}", status_code=502)
        if record:
            record.end_with(answer.status_code, content, is_stream=False)
        return Response(content, answer.status_code, headers)

    async def _send(self, sent: httpx2.Request, request: Request) -> httpx2.Response | str:
        """The upstream's answer, its body still to come; or what became of it."""
        sending = asyncio.create_task(self.client.send(sent, stream=True))
        leaving = asyncio.create_task(_until_gone(request))
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not sending.done():
            sending.cancel()
            return "agent_left"
        try:
            return sending.result()
        except httpx2.HTTPError:
            return "no_connection"

    async def _stream(self, answer: httpx2.Response, record: "Recording | None") -> AsyncIterator[bytes]:
        chunks: list[bytes] = []
        end = b""
        try:
            async for chunk in answer.aiter_raw():
                chunks.append(chunk)
                end = (end + chunk)[-len(chunk) - 16 :]
                if record and b"data: [DONE]" in end:
                    record.end_with(answer.status_code, b"".join(chunks), is_stream=True)
                yield chunk
        finally:  # where the upstream breaks off, so do we
            if record:
                record.end_with(answer.status_code, b"".join(chunks), is_stream=True)
            await answer.aclose()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Recording:
    """One chat exchange while it lasts; it is kept once, however it ends."""

    def __init__(self, proxy: Proxy, body: bytes) -> None:
        self.proxy, self.body = proxy, body
        self.started = time.time()
        self.is_kept = False

    def end_with(self, status: int, content: bytes, is_stream: bool) -> None:
        if status >= 400:
            self.end(f"http_{status}")
        else:
            outcome, answer = read_answer(content, is_stream)
            self.end(outcome, answer)

    def end(self, outcome: str, answer: dict | None = None) -> None:
        if self.is_kept:
            return
        self.is_kept = True
        try:
            request = parse_json(self.body)
            exchange = self.proxy.exchanges.continue_with(request, outcome, answer)
        except (ValueError, TypeError, KeyError, AttributeError):
            exchange = Exchange(outcome="unreadable_request")
        exchange.time = self.started
        exchange.latency_seconds = round(time.time() - self.started, 3)
        self.proxy.keep(exchange)


if __name__ == "__main__":
    sys.exit(main())
