"""What an endpoint's answer is to us: a `Reply` with what it cost, or an `EndpointError` of a known kind."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from condensery.message import FunctionCall, Message, ToolCall

Kind = Literal[
    "auth",
    "not_found",  # wrong path, or a model that is not served
    "context_length",  # the request is longer than the model's window
    "content_filter",
    "bad_request",  # any other refusal of this very request
    "rate_limited",
    "server",
    "timeout",
    "connection",
    "empty_choices",  # 200 OK with nothing in it
    "bad_response",  # not a chat completion at all
]
# The endpoint works, and will not take this very request.
REFUSALS = {"context_length", "content_filter", "bad_request"}


class EndpointError(Exception):
    """`kind` says what to do about it, `detail` is the provider's own reason."""

    def __init__(self, kind: Kind, detail: str, retry_after: float | None = None, attempts: int = 1) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.attempts = attempts


@dataclass(frozen=True)
class Reply:
    """One answer of a model with what it cost. `problem` says what in it could not be read as a turn."""

    message: Message
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt
    latency_seconds: float = 0.0
    attempts: int = 1
    null_content: bool = False
    problem: str | None = None

    @property
    def content(self) -> str | None:
        """The text as sent: None where the endpoint sent null, which `Message` reads as empty text."""
        return None if self.null_content else self.message.content


def read_completion(completion: Any, latency_seconds: float = 0.0, attempts: int = 1) -> Reply:
    """The first choice of a chat completion. Without one, raises EndpointError with the provider's reason.

    Servers put anything anywhere: one field of a wrong type makes the whole a bad response.
    """
    try:
        return _read_first_choice(completion, latency_seconds, attempts)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        detail = f"not a chat completion: {str(completion)[:200]}"
        raise EndpointError("bad_response", detail, attempts=attempts) from error


def _read_first_choice(completion: Any, latency_seconds: float, attempts: int) -> Reply:
    choice = next(iter(completion.get("choices") or []), None) or {}
    message = choice.get("message")
    reason = completion.get("error") or choice.get("error") or completion.get("detail") or ""
    if choice.get("finish_reason") == "content_filter":
        raise EndpointError(
            "content_filter", str(reason or (message or {}).get("refusal") or choice), attempts=attempts
        )
    if not message:
        raise EndpointError(
            "empty_choices", str(reason or "no message and no reason given"), attempts=attempts
        )
    usage = completion.get("usage") or {}
    return Reply(
        message=_read_message(message),
        finish_reason=str(choice.get("finish_reason") or "stop"),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count((usage.get("prompt_tokens_details") or {}).get("cached_tokens")),
        latency_seconds=round(latency_seconds, 3),
        attempts=attempts,
        null_content=message.get("content") is None,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _read_message(message: dict) -> Message:
    content = message.get("content")
    if isinstance(content, list):  # some providers send parts
        content = "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return Message(
        role="assistant",
        content=content or "",
        tool_calls=[_read_call(call, number) for number, call in enumerate(message.get("tool_calls") or [])],
        reasoning_content=message.get("reasoning_content") or message.get("reasoning") or None,
    )


def _read_call(call: dict, number: int) -> ToolCall:
    function = call.get("function") or {}
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    call_id = call.get("id") or f"call_{number}"
    return ToolCall(id=str(call_id), function=FunctionCall(name=function.get("name") or "", arguments=text))
