"""How well a block was restored: precision and recall in [0, 1], by rule or by a model.

A verdict that does not come, or cannot be read, is missing (None) with a typed reason, and never 0.
"""

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from condensery.endpoint import Endpoint
from condensery.facts import normalize, values_in
from condensery.files.jsonl import JsonlAppender, parse_json, read_jsonl
from condensery.prompt import escape
from condensery.reply import EndpointError
from condensery.tokens import CJK
from condensery.trajectory import content_id
from reconstruct.missing import Missing
from reconstruct.templates import render_request

PROMPT = "judge_v1"
Unreadable = Literal["empty", "truncated", "not_json", "wrong_fields", "out_of_range"]

FENCED = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL | re.IGNORECASE)
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
RESPONSE_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "judgement",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"precision": SHARE, "recall": SHARE},
            "required": ["precision", "recall"],
            "additionalProperties": False,
        },
    },
}

WORD = re.compile(rf"{CJK.pattern}|[^\W_]+")
# They stand in any text; the last ones are how a turn is rendered.
FUNCTION_WORDS = frozenset(
    "a an and are as at be but by for from had has have he her his i in is it its me my no not of on or our "
    "she so that the their them there they this to was we were which with you your 的 了 是 在 和 与 有 "
    "assistant user tool system memory".split()
)


@dataclass(frozen=True)
class Judgement:
    """`precision`: how much of what was restored the original supports; `recall`: how much of the original's
    important content came back. Both in [0, 1]."""

    precision: float
    recall: float


def lexical_judgement(truth: str, restored: str) -> Judgement:
    """By rule, without a model: one half from the values that are right or wrong to the letter (numbers,
    names, identifiers, quotes), one from the F1 of the content words.

    It is their F1 in the precision, too: three right words are all supported, and say next to nothing. Where
    there are no values to take a share of, words alone decide. Nothing restored is (0, 0), unless there was
    nothing.
    """
    true_values, values = _values(truth), _values(restored)
    true_words, words = _content_words(truth), _content_words(restored)
    if not any((true_values, values, true_words, words)):
        return Judgement(1.0, 1.0)
    num_words = true_words.total() + words.total()
    f1 = 2 * (true_words & words).total() / num_words if num_words else 0.0
    return Judgement(
        precision=f1 if not values else (len(values & true_values) / len(values) + f1) / 2,
        recall=f1 if not true_values else (len(values & true_values) / len(true_values) + f1) / 2,
    )


async def judge_lexically(truth: str, restored: str) -> Judgement:
    """`lexical_judgement` where a judge over an endpoint could stand."""
    return lexical_judgement(truth, restored)


def _values(text: str) -> set[str]:
    return {normalize(value).strip() for value in values_in(text)}


def _content_words(text: str) -> Counter[str]:
    return Counter(word for word in WORD.findall(normalize(text)) if word not in FUNCTION_WORDS)


def parse_judgement(content: str | None, finish_reason: str = "stop") -> Judgement | Unreadable:
    """The verdict in a judge's answer: one JSON object, bare or in a fence, with nothing around it.

    A number in prose is none: "I would not give it 1.0" holds one, too.
    """
    if finish_reason == "length":
        return "truncated"
    answer = (content or "").rpartition("</think>")[2].strip()
    if not answer:
        return "empty"
    fenced = FENCED.fullmatch(answer)
    try:
        value = parse_json(fenced[1] if fenced else answer)
    except ValueError:
        return "not_json"
    if not isinstance(value, dict) or value.keys() != {"precision", "recall"}:
        return "wrong_fields"
    # By type: true is an int to Python, and "0.8" is not what the schema says.
    if not all(type(share) in (int, float) for share in value.values()):
        return "wrong_fields"
    if not all(0 <= share <= 1 for share in value.values()):  # NaN is in no range
        return "out_of_range"
    return Judgement(float(value["precision"]), float(value["recall"]))


class EndpointJudge:
    """Verdicts of a model behind `endpoint`, whose timeout and concurrency hold for each call; no more than
    `max_per_second` are begun, where a provider limits the rate.

    `cache` is a file of verdicts by content, read at the start and appended to: the same restoration is paid
    for once, also by the next run. Only verdicts are kept; what is missing is asked for again. An answer that
    cannot be read is not asked for twice: at temperature 0 it would be the same. `missing` has the counts.
    """

    def __init__(
        self, endpoint: Endpoint, cache: Path | None = None, max_per_second: float | None = None
    ) -> None:
        self.endpoint = endpoint
        self.seconds_apart = 1 / max_per_second if max_per_second else 0.0
        self.next_call = 0.0
        self.missing = Missing("judge verdicts")
        self.known: dict[str, Judgement] = {}
        self.file: JsonlAppender | None = None
        if cache:
            self.file = JsonlAppender(cache)  # first: it repairs a torn tail
            self.known = {row["key"]: Judgement(row["precision"], row["recall"]) for row in read_jsonl(cache)}

    async def __call__(self, truth: str, restored: str) -> Judgement | None:
        """The verdict, or None where none came. Nothing restored is (0, 0) without asking."""
        if not restored.strip():
            return Judgement(0.0, 0.0)
        key = content_id([self.endpoint.model, PROMPT, truth, restored])
        if key not in self.known:
            judgement = await self._ask(truth, restored)
            if judgement is None:
                return None
            self.known[key] = judgement
            if self.file:
                self.file.append({"key": key, "precision": judgement.precision, "recall": judgement.recall})
        return self.known[key]

    async def _ask(self, truth: str, restored: str) -> Judgement | None:
        # Blocks are escaped already, and to escape again changes nothing.
        messages = render_request(PROMPT, original=escape(truth), restored=escape(restored))
        await self._wait_turn()
        try:
            reply = await self.endpoint.chat(messages, response_format=RESPONSE_FORMAT)
        except EndpointError as error:
            self.missing.add(error.kind)
            return None
        found = parse_judgement(reply.content, reply.finish_reason)
        is_verdict = isinstance(found, Judgement)
        self.missing.add(None if is_verdict else str(found))
        return found if isinstance(found, Judgement) else None

    async def _wait_turn(self) -> None:
        begin = max(time.monotonic(), self.next_call)
        self.next_call = begin + self.seconds_apart
        await asyncio.sleep(begin - time.monotonic())

    async def close(self) -> None:
        if self.file:
            self.file.file.close()
        await self.endpoint.close()
