"""A history as blocks that can be hidden one by one, cut where a reader would cut it (SUMONE, FACTS 4).

Borders are taken in this order: before a user's turn, between whole steps (a call and its results), then,
inside a step far longer than a block, between paragraphs, lines, sentences and clauses. Never between a call
and the beginning of its result. A line without any of these stays whole, however long it is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict

from condensery.compaction import Compaction
from condensery.message import Message, closed_positions
from condensery.prompt import escape, render_history

Kind = Literal["constraint", "result", "error", "decision", "plan", "text", "memory"]

NAMES_THE_WHOLE: tuple[Kind, ...] = ("constraint", "error")
MAX_STEP = 1.5  # blocks; a longer step is divided
# Each border with what it ends; the text before and after it put together is the text.
BORDERS = [
    re.compile(r"(?<=\n\n)(?=[^\n])"),
    re.compile(r"(?<=\n)"),
    re.compile(r"(?<=[.!?] )|(?<=[。！？])"),
    re.compile(r"(?<=[,;:] )|(?<=[，；：])"),
]
ERROR = re.compile(
    r"(?:observation:)?\W{0,20}(?:\w{0,40}error\b|\w{0,40}exception\b|traceback\b|fatal\b|failed\b|错误|失败"
    r"|(?:http\S{0,10}|status(?: code)?)[\s:]*[45]\d\d\b"
    r"|[45]\d\d[\s:]+(?:client|server|bad|unauthorized|forbidden|not found|too many|internal|gateway))",
    re.IGNORECASE,
)
TRACEBACK = "Traceback (most recent call last)"
DECISION = re.compile(
    r"\b(?:I will|I'll|I'm going to|we will|we'll|let's|let me|therefore|decided? (?:to|on|that)"
    r"|(?:the|my|final) answer is|in conclusion)\b|因此|所以|决定|答案是|结论是",
    re.IGNORECASE,
)
PLAN = re.compile(r"\b(?:next steps?|plan|to-?do)\b[^\n]{0,40}[:：]|下一步|计划[:：]", re.IGNORECASE)
RULE = re.compile(r"\b(?:must|only|never|do not|don't)\b|必须|只能|不得|不要", re.IGNORECASE)
NUMBERED = re.compile(r"^[ \t]*(?:step )?\d{1,2}[.)、:] *\S", re.IGNORECASE | re.MULTILINE)


class Block(BaseModel):
    """A piece of history as `render_history` writes it, escaped.

    `continues`: it begins in the middle of a line, so no line break stands between it and the block before.
    """

    model_config = ConfigDict(extra="forbid")
    kind: Kind
    text: str
    continues: bool = False


@dataclass(frozen=True)
class Piece:
    """What is not divided further; its text ends with the border behind it.

    `opens`: a user's turn begins here, a good place for a block to begin.
    """

    text: str
    tokens: float
    kind: Kind
    opens: bool = False


def blocks_of(compaction: Compaction, block_tokens: int, count: Callable[[str], int]) -> list[Block]:
    """The last summary (kind "memory") and then the expired turns, in blocks of about `block_tokens`.

    `count` counts the tokens of a text.
    """
    memory: list[Piece] = []
    if compaction.last_summary:
        text = f"[memory] {escape(compaction.last_summary.strip())}\n"
        memory = _divide(text, count(text), block_tokens, "memory")
    return [*_pack(memory, block_tokens), *turn_blocks(compaction.expired, block_tokens, count)]


def turn_blocks(messages: list[Message], block_tokens: int, count: Callable[[str], int]) -> list[Block]:
    """`join_blocks` of these is `render_history(messages)`, to the letter."""
    pieces = [piece for step in steps_of(messages) for piece in _pieces_of(step, block_tokens, count)]
    return _pack(pieces, block_tokens)


def join_blocks(blocks: list[Block]) -> str:
    """The text that was divided."""
    lines = [("" if block.continues else "\n") + block.text for block in blocks]
    return "".join(lines).removeprefix("\n")


def steps_of(messages: list[Message]) -> Iterator[list[Message]]:
    """The turns between one closed position and the next: a call stays with its results.

    What follows a call that is never answered is one step to the end.
    """
    borders = dict.fromkeys([*closed_positions(messages), len(messages)])
    return (messages[start:end] for start, end in pairwise(borders))


def kind_of(message: Message) -> Kind:
    """By rule: whatever a user says may bind the agent, and an error is told by how a result begins."""
    if message.role == "user" or (message.role == "system" and RULE.search(message.content)):
        return "constraint"
    if message.role == "tool":
        is_error = ERROR.match(message.content) or TRACEBACK in message.content
        return "error" if is_error else "result"
    said = f"{message.reasoning_content or ''}\n{message.content}"
    if PLAN.search(said) or len(NUMBERED.findall(said)) > 1:
        return "plan"
    return "decision" if DECISION.search(said) else "text"


def _pieces_of(step: list[Message], block_tokens: int, count: Callable[[str], int]) -> list[Piece]:
    texts = [render_history([message]) + "\n" for message in step]
    sizes = [count(text) for text in texts]
    if sum(sizes) <= MAX_STEP * block_tokens:
        turns = [Piece(text, size, kind_of(message)) for message, text, size in zip(step, texts, sizes)]
        return [_merged(turns, opens=step[0].role == "user")]
    pieces: list[Piece] = []
    for number, (message, text, size) in enumerate(zip(step, texts, sizes)):
        parts = _divide(text, size, block_tokens, kind_of(message), opens=message.role == "user")
        if number and step[number - 1].tool_calls:  # a call stays with the beginning of its result
            parts[:1] = [_merged([pieces.pop(), parts[0]])]
        pieces += parts
    return pieces


def _divide(
    text: str, tokens: float, max_tokens: int, kind: Kind, opens: bool = False, level: int = 0
) -> list[Piece]:
    """At the borders of `level`, and at finer ones where a part is still too long."""
    if tokens <= max_tokens or level == len(BORDERS):
        return [Piece(text, tokens, kind, opens)]
    pieces: list[Piece] = []
    for part in filter(None, BORDERS[level].split(text)):
        share = tokens * len(part) / len(text)
        pieces += _divide(part, share, max_tokens, kind, opens and not pieces, level + 1)
    return pieces


def _merged(pieces: list[Piece], opens: bool = False) -> Piece:
    """What binds or went wrong names the whole; else what there is most of."""
    sizes: Counter[Kind] = Counter()
    for piece in pieces:
        sizes[piece.kind] += len(piece.text)
    kind = next((kind for kind in NAMES_THE_WHOLE if kind in sizes), sizes.most_common(1)[0][0])
    return Piece("".join(piece.text for piece in pieces), sum(piece.tokens for piece in pieces), kind, opens)


def _pack(pieces: list[Piece], block_tokens: int) -> list[Block]:
    """Neighbours together while that brings a block closer to its size."""
    groups: list[list[Piece]] = []
    size = 0.0
    for piece in pieces:
        is_full = piece.tokens > 2 * (block_tokens - size)
        if not groups or is_full or (piece.opens and size >= block_tokens / 2):
            groups.append([])
            size = 0.0
        groups[-1].append(piece)
        size += piece.tokens
    blocks: list[Block] = []
    continues = False
    for whole in map(_merged, groups):
        blocks.append(Block(kind=whole.kind, text=whole.text.removesuffix("\n"), continues=continues))
        continues = not whole.text.endswith("\n")
    return blocks
