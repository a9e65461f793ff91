"""Chat exchanges that belong together: a request that repeats an earlier one and its answer continues it."""

import hashlib
import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict

from condensery.files.jsonl import parse_json


class Exchange(BaseModel):
    """`messages` are those that no earlier exchange holds, `parent` is the number of the one it continues.

    `outcome` is "answered", or says why there is no `answer`: an error of the upstream is no turn.
    """

    model_config = ConfigDict(extra="forbid")
    outcome: str
    parent: int | None = None
    messages: list[dict] = []
    answer: dict | None = None
    model: str | None = None
    tools: list[dict] | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    time: float | None = None
    latency_seconds: float | None = None


class Exchanges:
    """All exchanges in order; their numbers are positions here, and lines of the file, from 0."""

    def __init__(self) -> None:
        self.all: list[Exchange] = []
        self.states: list[str] = []  # what was said up to and with the answer of each; "" without one
        self.number_of: dict[str, int] = {}

    def add(self, exchange: Exchange) -> None:
        state = ""
        if exchange.answer is not None:
            before = "" if exchange.parent is None else self.states[exchange.parent]
            state = states_of([*exchange.messages, exchange.answer], before)[-1]
            self.number_of[state] = len(self.all)
        self.states.append(state)
        self.all.append(exchange)

    def continue_with(self, request: dict, outcome: str, answer: dict | None) -> Exchange:
        """The exchange of this request. Raises ValueError and the like for what is no chat request."""
        messages = request["messages"]
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            raise ValueError("no list of messages")
        known = [
            (position, self.number_of[state])
            for position, state in enumerate(states_of(messages), start=1)
            if state in self.number_of
        ]
        start, parent = known[-1] if known else (0, None)
        fields = answer or {}
        return Exchange(
            outcome=outcome, parent=parent, messages=messages[start:], model=request.get("model"),
            tools=request.get("tools") if parent is None else None, **fields,
        )  # fmt: skip

    def conversations(self) -> list[dict]:
        """A row in the OpenAI chat shape for each exchange that was answered and not continued."""
        continued = {each.parent for each in self.all if each.answer is not None}
        return [
            self._conversation(number)
            for number, exchange in enumerate(self.all)
            if exchange.answer is not None and number not in continued
        ]

    def _conversation(self, number: int) -> dict:
        chain: list[Exchange] = []
        step: int | None = number
        while step is not None:
            chain.insert(0, self.all[step])
            step = self.all[step].parent
        messages = [turn for each in chain for turn in [*each.messages, each.answer]]
        return {"messages": messages, "tools": chain[0].tools, "model": chain[-1].model}


def states_of(messages: list[dict], state: str = "") -> list[str]:
    """A hash of all that was said up to each message. Only what a turn says counts: agents send answers back
    with more or fewer empty fields than they came with."""
    states = []
    for message in messages:
        calls = [
            (call.get("id"), function.get("name"), function.get("arguments"))
            for call in message.get("tool_calls") or []
            for function in [call.get("function") or {}]
        ]
        said = [message.get("role"), message.get("content") or "", calls, message.get("tool_call_id")]
        state = hashlib.sha256((state + json.dumps(said, sort_keys=True)).encode()).hexdigest()[:24]
        states.append(state)
    return states


def read_answer(content: bytes, is_stream: bool) -> tuple[str, dict | None]:
    """(outcome, fields of an Exchange) of a response: of its first choice, the others are other runs."""
    try:
        completion = join_chunks(content) if is_stream else parse_json(content)
        choice = completion["choices"][0]
        message = {name: value for name, value in choice["message"].items() if value not in (None, "", [])}
        usage = completion.get("usage") or {}
        turn = {"role": "assistant", "content": None} | message
        states_of([turn])  # raises for calls in a shape that no conversation can go on from
        counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
        answer: dict[str, Any] = {"answer": turn, "finish_reason": str(choice.get("finish_reason"))}
        answer |= {name: count for name, count in counts.items() if isinstance(count, int)}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "unreadable_answer", None
    return ("answered", answer) if choice.get("finish_reason") else ("incomplete", None)


def join_chunks(content: bytes) -> dict:
    """The completion that a stream's chunks add up to; without a finish reason where it broke off."""
    texts: dict[str, list[str]] = {}
    calls: dict[int, dict] = {}
    usage, finish_reason = None, None
    # Not `splitlines`: that divides at U+2028, which stands raw in JSON.
    for line in re.split(r"\r\n|\n|\r", content.decode("utf-8", "replace")):
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        try:
            chunk = parse_json(data)
        except ValueError:  # the last line of a stream that broke off
            continue
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or []:
            if choice.get("index", 0) != 0:
                continue
            finish_reason = choice.get("finish_reason") or finish_reason
            _add_delta(texts, calls, choice.get("delta") or {})
    message: dict[str, Any] = {"role": "assistant"} | {name: "".join(parts) for name, parts in texts.items()}
    if calls:
        message["tool_calls"] = [calls[number] for number in sorted(calls)]
    return {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": usage}


def _add_delta(texts: dict[str, list[str]], calls: dict[int, dict], delta: dict) -> None:
    for name in ("content", "reasoning_content", "reasoning"):
        if isinstance(delta.get(name), str):
            texts.setdefault(name, []).append(delta[name])
    for part in delta.get("tool_calls") or []:
        empty = {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
        call = calls.setdefault(part.get("index", 0), empty)
        call["id"] = part.get("id") or call["id"]
        for name in ("name", "arguments"):
            call["function"][name] += (part.get("function") or {}).get(name) or ""
