"""A web server on loopback for tests of tools: it answers what a test scripts, and keeps what was asked."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from tests.scripted_endpoint import Raw, send_raw, status


@dataclass(frozen=True)
class Asked:
    path: str
    body: dict
    headers: dict[str, str]


def html(text: str, charset: str = "utf-8") -> Raw:
    """A page whose charset only its own head tells."""
    paragraphs = "".join(f"<p>{line}</p>" for line in text.split("\n"))
    page = f'<html><head><meta charset="{charset}"><title>T</title></head><body><article>{paragraphs}'
    return Raw(200, f"{page}</article></body></html>".encode(charset), {"Content-Type": "text/html"})


class PageServer:
    """`answer` gets path, JSON body and headers of a request."""

    def __init__(self) -> None:
        self.answer: Callable[[str, dict, dict], Raw] = lambda path, body, headers: status(404)
        self.requests: list[Asked] = []
        self.closing = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "PageServer":
        serve = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        serve.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                self.reply({})

            def do_POST(self) -> None:
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, body: dict) -> None:
                headers = {name: value for name, value in self.headers.items()}
                pages.requests.append(Asked(self.path, body, headers))
                send_raw(self, pages.answer(self.path, body, headers), pages.closing)

        return Handler
