"""An agent behind the proxy runs unchanged, streaming too; what it said becomes compactions and pairs."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest

from condensery.files.jsonl import read_jsonl
from data_synthesis.capture import main
from data_synthesis.exchange import read_answer
from data_synthesis.import_logs import main as import_main
from data_synthesis.pairs import main as pairs_main
from tests.scripted_endpoint import Raw, ScriptedEndpoint, call_tool, completion, say, status

KEY = "sk-secret-0123456789"
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
PAGE = "The mill of Harrow Bay was built in 1843 of grey stone and stands by the river. " * 6
ROUNDS = 8


def chunks_of(reply: dict) -> bytes:
    """The completion as a stream: a piece of text or arguments at a time, the usage in a chunk of its own."""
    (choice,) = reply["choices"]
    deltas: list[dict] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": letter} for letter in choice["message"]["content"] or ""]
    for index, call in enumerate(choice["message"].get("tool_calls") or []):
        opening = {"name": call["function"]["name"], "arguments": ""}
        deltas.append(
            {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": opening}]}
        )
        for part in re.findall(".{1,5}", call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    rows = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    rows.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    rows.append({"choices": [], "usage": reply["usage"]})
    stream = [completion(None) | {"object": "chat.completion.chunk"} | row for row in rows]
    return "".join(f"data: {json.dumps(row)}\n\n" for row in stream).encode() + b"data: [DONE]\n\n"


def model(body: dict) -> dict | Raw:
    """Searches some times, then answers; streams when asked to. Trouble for who asks for it."""
    text = str(body["messages"][-1]["content"])
    if found := re.match(r"fail with (\d+)", text):
        return status(int(found[1]), f"no {KEY}")
    number = sum(turn["role"] == "assistant" for turn in body["messages"])
    reply = say("The mill is from 1843.")
    if number < ROUNDS and body.get("tools"):
        reply = call_tool("search", {"query": [f"mill {number}"]}, f"call_{number}", content="Look further.")
    if not body.get("stream"):
        return reply
    stream = chunks_of(reply)
    half = "break off" in text
    return Raw(200, stream[: len(stream) // 2] if half else stream, {"Content-Type": "text/event-stream"})


@pytest.fixture
def upstream() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(model) as server:
        yield server


class Capture:
    """The real command in a process of its own."""

    def __init__(self, upstream: ScriptedEndpoint, directory: Path, *words: str) -> None:
        command = [sys.executable, "-m", "data_synthesis.capture", "--upstream", upstream.url, "--port", "0"]
        command += ["--output_dir", str(directory), *words]
        self.directory = directory
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip().removeprefix("OPENAI_BASE_URL=")

    def agent(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=KEY, max_retries=0, timeout=5)

    def end(self, number: signal.Signals = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=20)
        assert number == signal.SIGKILL or self.process.returncode == 0, err
        return out

    def conversations(self) -> list[dict]:
        return read_jsonl(self.directory / "conversations.jsonl")


@pytest.fixture
def capture(upstream: ScriptedEndpoint, tmp_path: Path) -> Iterator[Capture]:
    proxy = Capture(upstream, tmp_path / "capture")
    yield proxy
    with contextlib.suppress(ProcessLookupError):
        proxy.process.kill()
    proxy.process.communicate()


def run_agent(client: openai.OpenAI, question: str, stream: bool) -> list[dict]:
    """A research agent as people write them; the messages it ends with."""
    messages: list = [{"role": "user", "content": question}]
    while True:
        turn = ask(client, messages, stream)
        messages.append(turn)
        if not turn.get("tool_calls"):
            return messages
        for call in turn["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": PAGE})


def ask(client: openai.OpenAI, messages: list, stream: bool) -> dict:
    request = {"model": "scripted", "messages": messages, "tools": TOOLS}
    if not stream:
        return client.chat.completions.create(**request).choices[0].message.model_dump(exclude_none=True)
    with client.chat.completions.stream(**request) as events:
        for _ in events:
            pass
        message = events.get_final_completion().choices[0].message
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in message.tool_calls or []
    ]
    return {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_runs_unchanged_and_its_run_becomes_pairs(
    upstream: ScriptedEndpoint, capture: Capture, tmp_path: Path, stream: bool
) -> None:
    direct = openai.OpenAI(base_url=upstream.url, api_key=KEY)
    question = "When was the mill of Harrow Bay built?"
    expected = run_agent(direct, question, stream)
    assert run_agent(capture.agent(), question, stream) == expected
    assert upstream.requests[: ROUNDS + 1] == upstream.requests[ROUNDS + 1 :]
    assert set(upstream.api_keys) == {f"Bearer {KEY}"}
    assert f"exchanges {ROUNDS + 1:6}  answered" in capture.end()
    (row,) = capture.conversations()
    assert [turn["role"] for turn in row["messages"]] == [turn["role"] for turn in expected]
    assert row["messages"][-1]["content"] == "The mill is from 1843." and row["tools"] == TOOLS
    exchanges = read_jsonl(capture.directory / "exchanges.jsonl")
    assert {each["prompt_tokens"] for each in exchanges} == {7}
    logs, pairs = tmp_path / "logs", tmp_path / "pairs"
    words = ["--output_dir", str(logs), "--window_tokens", "1000"]
    assert import_main([str(capture.directory / "conversations.jsonl"), *words]) == 0
    assert pairs_main([str(logs), "--output_dir", str(pairs), "--held_out", "0", "--on_error", "skip"]) == 0
    assert read_jsonl(pairs / "train.jsonl")


def test_no_key_is_stored(capture: Capture) -> None:
    run_agent(capture.agent(), "When was the mill built?", stream=True)
    httpx2.post(
        f"{capture.url}/chat/completions?api-key={KEY}", json={"messages": []}, headers={"api-key": KEY}
    )
    with pytest.raises(openai.AuthenticationError):
        ask(capture.agent(), [{"role": "user", "content": "fail with 401"}], stream=False)
    out = capture.end()
    files = [path for path in capture.directory.rglob("*") if path.is_file()]
    assert len(files) == 3 and not [path for path in files if KEY in path.read_text()]
    assert KEY not in out


def test_trouble_passes_through_is_counted_and_is_no_turn(
    capture: Capture, upstream: ScriptedEndpoint
) -> None:
    client = capture.agent()
    for code, error in (
        (401, openai.AuthenticationError),
        (429, openai.RateLimitError),
        (500, openai.APIError),
    ):
        with pytest.raises(error):
            ask(client, [{"role": "user", "content": f"fail with {code}"}], stream=False)
    with contextlib.suppress(Exception):  # whatever this client makes of a stream that breaks off
        ask(client, [{"role": "user", "content": "break off"}], stream=True)
    run_agent(client, "When was the mill built?", stream=False)
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert httpx2.get(f"{capture.url}/nowhere").status_code == 200
    out = capture.end()
    for outcome in ("http_401", "http_429", "http_500", "incomplete"):
        assert f"exchanges {1:6}  {outcome}" in out
    assert len(capture.conversations()) == 1


def test_a_hang_is_the_agents_to_end_and_holds_up_nobody(
    capture: Capture, upstream: ScriptedEndpoint
) -> None:
    upstream.script = lambda body: Raw(status=0) if "hang" in str(body) else model(body)
    client = openai.OpenAI(base_url=capture.url, api_key=KEY, max_retries=0, timeout=1)

    def hang() -> None:
        with pytest.raises(openai.APITimeoutError):
            ask(client, [{"role": "user", "content": "hang"}], stream=False)

    hanging = threading.Thread(target=hang)
    hanging.start()
    run_agent(capture.agent(), "When was the mill built?", stream=False)
    hanging.join()
    assert f"exchanges {1:6}  agent_left" in capture.end()


def test_many_agents_at_once_and_a_branch_are_runs_of_their_own(capture: Capture) -> None:
    def work(number: int) -> None:
        run_agent(capture.agent(), f"When was mill {number} built?", stream=number % 2 == 0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = run_agent(capture.agent(), "When was mill 0 built?", stream=False)
    # The agent compacts its own history: what it goes on from was never said before.
    ask(capture.agent(), [messages[0], {"role": "user", "content": "So far: it is old."}], stream=False)
    capture.end(signal.SIGINT)
    rows = capture.conversations()
    assert sorted(len(row["messages"]) for row in rows)[0] == 3
    assert len([row for row in rows if len(row["messages"]) == 2 * ROUNDS + 2]) in (6, 7)


def test_a_kill_loses_no_answered_exchange(upstream: ScriptedEndpoint, tmp_path: Path) -> None:
    proxy = Capture(upstream, tmp_path / "capture")
    messages = run_agent(proxy.agent(), "When was the mill built?", stream=True)
    proxy.end(signal.SIGKILL)
    with open(tmp_path / "capture" / "exchanges.jsonl", "a") as file:
        file.write('{"outcome": "ans')
    again = Capture(upstream, tmp_path / "capture", "--resume")
    (row,) = again.conversations()
    assert len(row["messages"]) == len(messages)
    ask(again.agent(), [*messages, {"role": "user", "content": "And the bridge?"}], stream=False)
    again.end()
    (row,) = again.conversations()
    assert len(row["messages"]) == len(messages) + 2, "the conversation goes on after the kill"


@pytest.mark.parametrize(
    ("content", "is_stream", "outcome"),
    [
        (b"<html>", False, "unreadable_answer"),
        (b'{"choices": []}', False, "unreadable_answer"),
        (b'{"choices": [{"message": null}]}', False, "unreadable_answer"),
        (b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}', False, "answered"),
        (b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n', True, "incomplete"),
        (b"data: [DONE]\n\n", True, "incomplete"),
        (b'data: {"choices": [{"delta": {"content": "\xe4', True, "incomplete"),
        (b"data: 7\n\n", True, "unreadable_answer"),
    ],
)
def test_an_answer_of_any_shape_has_one_outcome(content: bytes, is_stream: bool, outcome: str) -> None:
    assert read_answer(content, is_stream)[0] == outcome


def test_wrong_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def complaint(*words: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["--output_dir", str(tmp_path / "out"), *words])
        assert caught.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "give the URL of an endpoint" in complaint("--upstream", "nowhere")
    assert "holds a key or a query" in complaint("--upstream", f"http://127.0.0.1/v1?key={KEY}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["--upstream", "http://127.0.0.1:9/v1", "--port", str(taken.getsockname()[1])]
        assert "in use" in complaint(*words)


def test_a_stream_is_divided_at_its_line_breaks_alone() -> None:
    """U+2028 and its like stand raw in JSON."""
    texts = ["The capital ", "is\u2028Paris\x85", " today."]
    chunks = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    for line_break in ("\n\n", "\r\n\r\n", "\r\r"):
        stream = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}{line_break}" for chunk in chunks)
        outcome, fields = read_answer(stream.encode(), is_stream=True)
        assert outcome == "answered" and fields and fields["answer"]["content"] == "".join(texts)


@pytest.mark.parametrize("calls", ["abc", ["abc"], [{"id": "1", "function": "f"}], [7]])
def test_calls_of_no_known_shape_are_an_unreadable_answer(calls: object) -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": calls}
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    assert read_answer(json.dumps(body).encode(), is_stream=False) == ("unreadable_answer", None)


def test_odd_fields_beside_an_answer_do_not_lose_it() -> None:
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": 5}
    body = {"choices": [choice], "usage": {"prompt_tokens": 1.5, "completion_tokens": 2}}
    outcome, fields = read_answer(json.dumps(body).encode(), is_stream=False)
    assert outcome == "answered" and fields is not None
    assert (fields["finish_reason"], fields.get("prompt_tokens"), fields["completion_tokens"]) == (
        "5",
        None,
        2,
    )
