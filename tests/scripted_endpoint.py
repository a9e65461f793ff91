"""An OpenAI-compatible server on loopback whose answers a test scripts: real HTTP, no mock of the client.

    with ScriptedEndpoint(lambda body: say("hello")) as server:
        Endpoint(server.url, "scripted")

The script gets the request body and returns a completion (a dict), `status(429, ...)`, or `HANG`.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Raw:
    """An answer that is not a completion: status, headers, body; `drip_seconds` sends a byte at a time."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drip_seconds: float = 0.0


HANG = Raw(status=0)
Script = Callable[[dict], dict | Raw]


def status(code: int, message: str = "scripted", **headers: str) -> Raw:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Raw(code, body, {"Content-Type": "application/json"} | headers)


def completion(message: dict | None, finish_reason: str = "stop", **fields: Any) -> dict:
    """A body of the chat-completions protocol around one message."""
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    } | fields


def say(content: str | list | None, finish_reason: str = "stop", **message: Any) -> dict:
    return completion({"role": "assistant", "content": content} | message, finish_reason)


def call_tool(name: str, arguments: dict, call_id: str = "call_0", content: str | None = None) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return say(content, "tool_calls", tool_calls=calls)


class ScriptedEndpoint:
    """`requests` holds every chat request in order of arrival; `api_keys` the keys they came with."""

    def __init__(self, script: Script, models: list[str] | None = None) -> None:
        self.script = script
        self.models = ["scripted"] if models is None else models
        self.listed: dict | Raw | None = None  # instead of the list of `models`
        self.requests: list[dict] = []
        self.api_keys: list[str | None] = []
        self.closing = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self) -> "ScriptedEndpoint":
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                listed = {
                    "object": "list",
                    "data": [{"id": name, "object": "model"} for name in endpoint.models],
                }
                self.answer(endpoint.listed or (listed if endpoint.models else status(404)))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(body)
                endpoint.api_keys.append(self.headers.get("Authorization"))
                self.answer(endpoint.script(body) if self.path.endswith("/chat/completions") else status(404))

            def answer(self, reply: dict | Raw) -> None:
                if isinstance(reply, dict):
                    reply = Raw(200, json.dumps(reply).encode(), {"Content-Type": "application/json"})
                send_raw(self, reply, endpoint.closing)

        return Handler


def send_raw(handler: BaseHTTPRequestHandler, reply: Raw, closing: threading.Event) -> None:
    """What a test scripted, byte for byte; `HANG` holds the connection until the server closes."""
    if reply.status == 0:
        closing.wait(30)
        handler.close_connection = True
        return
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(reply.body)))
    handler.end_headers()
    try:
        if not reply.drip_seconds:
            handler.wfile.write(reply.body)
        for byte in reply.body if reply.drip_seconds else b"":
            handler.wfile.write(bytes([byte]))
            time.sleep(reply.drip_seconds)
    except OSError:  # the client has given up, as it should
        handler.close_connection = True
