"""Histories of agents for the tests of this package."""

from condensery.compaction import Compaction
from condensery.message import FunctionCall, Message, ToolCall
from reconstruct.blocks import blocks_of
from reconstruct.instance import Instance


def words(text: str) -> int:
    """Counts tokens where a test wants to know them: one a word, one a CJK character or longer line."""
    return max(1, len(text.split()))


def call(number: int, name: str = "search", content: str = "Look it up.") -> Message:
    function = FunctionCall(name=name, arguments=f'{{"query": "mill {number}"}}')
    return Message(
        role="assistant", content=content, tool_calls=[ToolCall(id=f"c{number}", function=function)]
    )


def result(number: int, content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id=f"c{number}")


def steps(count: int) -> list[Message]:
    """`count` calls with their results, of about 20 words each."""
    turns = []
    for number in range(count):
        found = f"Mill {number} was built in {1840 + number} by Ann Smith. It has {number + 3} wheels."
        turns += [call(number), result(number, found)]
    return turns


def compaction(expired: list[Message], **changes: object) -> Compaction:
    fields = {"id": "c", "trajectory_id": "t", "question_id": "q", "index": 0, "task": "When was it built?"}
    return Compaction.model_validate(fields | {"expired": expired} | changes)


def instance(
    expired: list[Message], masks: list[list[int]], block_tokens: int = 20, **changes: object
) -> Instance:
    asked = compaction(expired, **changes)
    blocks = blocks_of(asked, block_tokens, words)
    return Instance(
        id="c", compaction=asked, context_tokens=1024, blocks=blocks, masks=masks, source="s", language="en"
    )
