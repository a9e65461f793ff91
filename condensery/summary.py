"""Reading what a summarizer wrote: an accepted summary, or a typed failure that is never passed on as text.

Accepted is exactly one outermost `<summary>` block after the last `</think>`, balanced and closed. Text
around it is ignored. The public ReSum client takes what follows the first `<summary>` anywhere, so a block
quoted in the reasoning, or an empty reply, silently replaces the agent's history there.
"""

import re
from dataclasses import dataclass
from typing import Literal

Failure = Literal[
    "null",  # no content at all
    "empty",  # content or block of length zero
    "whitespace",  # nothing but white space
    "length",  # the endpoint stopped it at max_tokens
    "tool_call",  # it calls a tool instead of summarizing
    "thinking_only",  # reasoning, closed, and nothing after it
    "unclosed_thinking",
    "no_block",
    "unclosed_block",
    "two_blocks",
    "placeholder",  # a block that says nothing: "...", "N/A", a section skeleton
    "no_gain",  # not shorter than what it replaces
    "endpoint_error",  # no answer to parse
]

TAG = re.compile(r"<(/?)summary>", re.IGNORECASE)
ENDS_TARGET = re.compile(r"<(?=/?(?:summary|think)>)", re.IGNORECASE)
TOOL_CALL = re.compile(r"<tool_call>|<function=", re.IGNORECASE)
# What a section is called, in plain text or Markdown: "Facts:", "- **Open:**", "## Next".
HEADING, LABEL = re.compile(r"\s*#+ "), re.compile(r"([^:：]{1,60})[:：]")
MAX_PLACEHOLDER = 300  # characters; the pattern tries every way to split what surrounds the word
PLACEHOLDER = re.compile(
    r"\W*(?:n/?a|none|null|todo|tbd|placeholder|empty|unknown|summary|your summary(?: goes)? here|no summary"
    r"|\[[^\]\n]*\]|\{[^}\n]*\}|无|暂无|待定)?\W*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Summary:
    """Exactly one of `text` (accepted) and `failure` (typed) is set."""

    text: str | None = None
    failure: Failure | None = None


def parse_summary(
    content: str | None, finish_reason: str | None = "stop", has_tool_calls: bool = False
) -> Summary:
    """The summary in one model output. `content` excludes reasoning that the endpoint already split off."""
    if finish_reason == "length":
        return Summary(failure="length")
    if has_tool_calls:
        return Summary(failure="tool_call")
    if content is None:
        return Summary(failure="null")
    if not content.strip():
        return Summary(failure="whitespace" if content else "empty")
    answer, failure = _after_thinking(content)
    return Summary(failure=failure) if failure else _outermost_block(answer)


def _after_thinking(content: str) -> tuple[str, Failure | None]:
    """What follows the last `</think>`; where the chat template opened the thinking, it only closes."""
    _, closed, answer = content.rpartition("</think>")
    # A thought that never closes swallows whatever follows, a summary block too.
    if "<think>" in answer.split("<summary>")[0]:
        return answer, "unclosed_thinking"
    if closed and not answer.strip():
        return answer, "thinking_only"
    return answer, None


def _outermost_block(answer: str) -> Summary:
    blocks: list[str] = []
    depth, start, outside, outside_start = 0, 0, "", 0
    for tag in TAG.finditer(answer):
        if tag[1]:
            if depth == 0:  # a closing tag that nothing opened
                return Summary(failure="no_block" if not blocks else "two_blocks")
            depth -= 1
            if depth == 0:
                blocks.append(answer[start : tag.start()])
                outside_start = tag.end()
        else:
            if depth == 0:
                outside += answer[outside_start : tag.start()]
                start = tag.end()
            depth += 1
    if depth:
        return Summary(failure="unclosed_block")
    if not blocks:
        return Summary(failure="tool_call" if TOOL_CALL.search(answer) else "no_block")
    if len(blocks) > 1:
        return Summary(failure="two_blocks")
    # Inside the block a quoted call is text; outside it the model meant to act.
    if TOOL_CALL.search(outside + answer[outside_start:]):
        return Summary(failure="tool_call")
    return _read_block(blocks[0])


def _read_block(block: str) -> Summary:
    if not block:
        return Summary(failure="empty")
    text = block.strip()
    if not text:
        return Summary(failure="whitespace")
    if all(_says_nothing(_without_label(line)) for line in text.splitlines()):
        return Summary(failure="placeholder")
    return Summary(text=text)


def _without_label(line: str) -> str:
    if HEADING.match(line):
        return ""
    label = LABEL.match(line)
    return line[label.end() :] if label and _is_name(label[1]) else line


def _is_name(label: str) -> bool:
    """Words alone, whatever Markdown stands around them."""
    words = re.search(r"\w.*\w|\w", label)
    return words is not None and re.fullmatch(r"[\w\s/]{1,40}", words[0]) is not None


def _says_nothing(text: str) -> bool:
    if not re.search(r"\w", text):
        return True
    return len(text) <= MAX_PLACEHOLDER and PLACEHOLDER.fullmatch(text) is not None


def check_gain(summary: Summary, num_summary_tokens: int, num_replaced_tokens: int) -> Summary:
    """An accepted summary that is not shorter than what it replaces would make compaction loop."""
    if summary.text is not None and num_summary_tokens >= num_replaced_tokens:
        return Summary(failure="no_gain")
    return summary


def wrap_summary(text: str) -> str:
    """The training target. Tags inside are escaped: other clients stop at the first closing tag, and a closed
    thought is cut off with all before it."""
    return f"<summary>\n{ENDS_TARGET.sub('&lt;', text.strip())}\n</summary>"
