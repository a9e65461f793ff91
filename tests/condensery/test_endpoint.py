"""The endpoint client against a real server on loopback: every way a call can end has a kind, and an end."""

import asyncio
import json
import socket
import time

import pytest

from condensery.endpoint import Endpoint, is_url
from condensery.reply import EndpointError, Reply
from tests.scripted_endpoint import HANG, Raw, Script, ScriptedEndpoint, call_tool, completion, say, status

HELLO = [{"role": "user", "content": "hello"}]
JSON = {"Content-Type": "application/json"}


def ask(
    script: Script, timeout_seconds: float = 5.0, **settings: object
) -> tuple[Reply | EndpointError, list[dict]]:
    with ScriptedEndpoint(script) as server:
        endpoint = Endpoint(
            server.url, "scripted", timeout_seconds=timeout_seconds, backoff_seconds=0.01, **settings
        )
        try:
            return asyncio.run(endpoint.chat(HELLO)), server.requests
        except EndpointError as error:
            return error, server.requests


def in_turn(*replies: dict | Raw) -> Script:
    remaining = iter(replies)
    return lambda body: next(remaining)


def test_reply_carries_text_usage_latency_and_attempts() -> None:
    reply, requests = ask(lambda body: say("hi", reasoning_content="think"))
    assert isinstance(reply, Reply)
    assert (reply.message.content, reply.message.reasoning_content) == ("hi", "think")
    assert (reply.finish_reason, reply.prompt_tokens, reply.completion_tokens, reply.attempts) == (
        "stop",
        7,
        3,
        1,
    )
    assert reply.latency_seconds > 0
    assert requests == [{"model": "scripted", "messages": HELLO}]


def test_calls_are_read_whatever_form_their_arguments_have() -> None:
    reply, _ = ask(lambda body: call_tool("search", {"query": "Ann"}))
    assert isinstance(reply, Reply) and reply.null_content and reply.content is None
    assert reply.message.tool_calls[0].function.arguments == '{"query": "Ann"}'
    calls = [
        {"function": {"name": "visit", "arguments": {"url": "é"}}},
        {"id": 7, "function": {"name": "stop"}},
    ]
    reply, _ = ask(lambda body: say("", tool_calls=calls))
    assert isinstance(reply, Reply)
    assert [call.id for call in reply.message.tool_calls] == ["call_0", "7"]
    assert [call.function.arguments for call in reply.message.tool_calls] == ['{"url": "é"}', "{}"]


@pytest.mark.parametrize(
    ("answer", "kind", "num_requests"),
    [
        (status(400, "temperature must be positive"), "bad_request", 1),
        (status(422, "no such field"), "bad_request", 1),
        (status(400, "This model's maximum context length is 4096 tokens"), "context_length", 1),
        (status(400, "The prompt is longer than the max_model_len of 512"), "context_length", 1),
        (status(413, "payload"), "context_length", 1),
        (status(400, "code content_filter: policy"), "content_filter", 1),
        (status(401, "bad key"), "auth", 1),
        (status(403, "not yours"), "auth", 1),
        (status(404, "model `x` does not exist"), "not_found", 1),
        (status(429, "slow down"), "rate_limited", 3),
        (status(500, "boom"), "server", 3),
        (status(503, "loading"), "server", 3),
        (completion(None, choices=[]), "empty_choices", 3),
        (completion(None), "empty_choices", 3),
        (say("", "content_filter"), "content_filter", 1),
        (Raw(200, b"<html>a web page</html>", {"Content-Type": "text/html"}), "bad_response", 1),
        (Raw(200, b'{"choices": [', JSON), "bad_response", 1),
        (Raw(200, b"[1]", JSON), "bad_response", 1),
        (Raw(200, b"[" * 100_000, JSON), "bad_response", 1),
        (completion(None, choices="hello"), "bad_response", 1),
        (completion(None, choices=[{"message": "hello"}]), "bad_response", 1),
        (say("", tool_calls="search"), "bad_response", 1),
        (say([{"type": "text", "text": 5}]), "bad_response", 1),
        (say("x", reasoning_content=["a"]), "bad_response", 1),
    ],
)  # fmt: skip
def test_failures_have_a_kind_and_only_what_can_heal_is_tried_again(
    answer: dict | Raw, kind: str, num_requests: int
) -> None:
    error, requests = ask(lambda body: answer, max_attempts=3)
    assert isinstance(error, EndpointError)
    assert (error.kind, len(requests), error.attempts) == (kind, num_requests, num_requests)


def test_the_reason_of_the_provider_is_kept() -> None:
    error, _ = ask(
        lambda body: {"choices": [], "error": {"message": "upstream is out of credit"}}, max_attempts=1
    )
    assert "out of credit" in str(error)
    error, _ = ask(lambda body: say(None, "content_filter", refusal="violence"))
    assert "violence" in str(error)
    error, _ = ask(lambda body: status(400, "top_p must be in (0, 1]"))
    assert "top_p must be in (0, 1]" in str(error)


def test_a_passing_fault_heals() -> None:
    reply, requests = ask(in_turn(status(503), completion(None, choices=[]), say("at last")))
    assert isinstance(reply, Reply)
    assert (reply.message.content, reply.attempts, len(requests)) == ("at last", 3, 3)


def test_retry_after_is_honoured() -> None:
    started = time.monotonic()
    reply, _ = ask(in_turn(status(429, Retry_After="0.4"), say("ok")))
    assert isinstance(reply, Reply) and time.monotonic() - started > 0.4


def test_a_wait_beyond_the_timeout_is_not_begun() -> None:
    started = time.monotonic()
    error, requests = ask(lambda body: status(429, Retry_After="60"), timeout_seconds=2)
    assert isinstance(error, EndpointError) and error.kind == "rate_limited"
    assert time.monotonic() - started < 2 and len(requests) == 1


def test_a_hanging_or_dripping_server_hits_the_timeout() -> None:
    drip = Raw(200, json.dumps(say("slow")).encode(), JSON, drip_seconds=0.1)
    for answer in (HANG, drip):
        started = time.monotonic()
        error, _ = ask(lambda body, answer=answer: answer, timeout_seconds=0.5)
        assert isinstance(error, EndpointError) and error.kind == "timeout"
        assert time.monotonic() - started < 2


def test_concurrency_is_bounded() -> None:
    open_now, most = [0], [0]

    def slow(body: dict) -> dict:
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        time.sleep(0.05)
        open_now[0] -= 1
        return say("ok")

    async def ask_many(endpoint: Endpoint) -> None:
        await asyncio.gather(*(endpoint.chat(HELLO) for _ in range(8)))

    with ScriptedEndpoint(slow) as server:
        asyncio.run(ask_many(Endpoint(server.url, "scripted", max_concurrency=2)))
    assert most[0] == 2


def test_a_key_that_is_none_is_refused_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint(lambda body: say("ok")) as server:
        monkeypatch.setenv("MY_KEY", "sk-1\n")  # as `cat` reads it from a file
        asyncio.run(Endpoint(server.url, "scripted", api_key_env="MY_KEY").chat(HELLO))
        assert server.api_keys == ["Bearer sk-1"]
        for key in ("sk-secret\nsk-other", "sk-secrét", "sk secret"):
            monkeypatch.setenv("MY_KEY", key)
            with pytest.raises(EndpointError, match="MY_KEY") as caught:
                asyncio.run(Endpoint(server.url, "scripted", api_key_env="MY_KEY").chat(HELLO))
            assert caught.value.kind == "auth" and "secr" not in str(caught.value)


@pytest.mark.parametrize(
    "listed", ["[1]", "null", '{"data": 5}', '{"data": [1, "a", {}]}', '{"data": {"id": 1}}']
)
def test_a_model_list_of_any_shape_lists_nothing(listed: str) -> None:
    with ScriptedEndpoint(lambda body: say("")) as server:
        server.listed = Raw(200, listed.encode(), JSON)
        asyncio.run(Endpoint(server.url, "scripted").check())
        assert len(server.requests) == 1, "the model itself was asked"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("http://localhost:8000/v1", True),
        ("https://[::1]/v1", True),
        ("http://host:port/v1", False),
        ("http://host:99999/v1", False),
        ("http://[::1/v1", False),
        ("http:///v1", False),
        ("httpbin", False),
        ("localhost:8000", False),
    ],
)
def test_what_is_a_url(text: str, is_one: bool) -> None:
    assert is_url(text) is is_one


def test_key_comes_from_the_environment_and_a_full_url_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-1")
    with ScriptedEndpoint(lambda body: say("ok")) as server:
        endpoint = Endpoint(server.url + "/chat/completions", "scripted", api_key_env="MY_KEY")
        asyncio.run(endpoint.chat(HELLO, max_tokens=5, top_k=20))
        assert server.api_keys == ["Bearer sk-1"] and server.requests[0]["top_k"] == 20
        assert "sk-1" not in repr(endpoint)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_check_tells_a_down_endpoint_from_one_that_lists_nothing() -> None:
    with pytest.raises(EndpointError) as caught:
        asyncio.run(Endpoint(f"http://127.0.0.1:{unused_port()}/v1", "scripted").check())
    assert caught.value.kind == "connection"
    with ScriptedEndpoint(lambda body: say("")) as server:
        asyncio.run(Endpoint(server.url, "scripted").check())
        assert server.requests == []
        asyncio.run(Endpoint(server.url, "an-alias").check())
        assert len(server.requests) == 1
    with ScriptedEndpoint(lambda body: say(""), models=[]) as server:
        asyncio.run(Endpoint(server.url, "scripted").check())
    with (
        ScriptedEndpoint(lambda body: status(404, "no such model")) as server,
        pytest.raises(EndpointError) as caught,
    ):
        asyncio.run(Endpoint(server.url, "misspelt").check())
    assert caught.value.kind == "not_found"
