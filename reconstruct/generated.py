"""The published reconstructor: a frozen model writes the hidden blocks out, all of a mask in one request.

Restoring sees `(C, masked H, S)` (SUMONE, FACTS 4). What the summaries of a group share stands first in the
request, the summary last, so that a server with a prefix cache reads the history once a group.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable

from condensery.endpoint import Endpoint
from condensery.prompt import escape, render_history
from condensery.reply import EndpointError
from reconstruct.instance import Instance
from reconstruct.judges import Judgement
from reconstruct.masks import masked_history
from reconstruct.missing import Missing
from reconstruct.templates import render_request

PROMPT = "reconstruct_v1"
OPENING = re.compile(r'<span id="(\d+)"\s*>')
CLOSING = "</span>"

# (original, restored) -> a verdict, or None where none came.
Judge = Callable[[str, str], Awaitable[Judgement | None]]


def reconstruction_prompt(instance: Instance, mask: list[int], summary: str | None) -> list[dict[str, str]]:
    """The request to restore the blocks of `mask`; without a summary, from what stands around them alone."""
    return render_request(
        PROMPT,
        task=escape(instance.compaction.task),
        retained=render_history(instance.compaction.retained),
        history=masked_history(instance.blocks, mask),  # escaped, with markers of ours
        num_missing=len(mask),
        summary=escape(summary or ""),
    )


def read_reconstruction(text: str, num_masked: int) -> list[str | None]:
    """The restored text of each hidden block by its number; None for one that was not written, or not closed.

    Order does not matter, other numbers are ignored, and of two blocks with one number the first counts. A
    block ends at the last `</span>` before the next one begins: history holds such tags of its own.
    """
    answer = text.rpartition("</think>")[2]
    openings = list(OPENING.finditer(answer))
    ends = [opening.start() for opening in openings[1:]] + [len(answer)]
    restored: dict[int, str] = {}
    for opening, end in zip(openings, ends):
        body, closed, _ = answer[opening.end() : end].rpartition(CLOSING)
        if closed:
            restored.setdefault(int(opening[1]), body.strip())
    return [restored.get(number) for number in range(1, num_masked + 1)]


async def restore(
    endpoint: Endpoint, instance: Instance, mask: list[int], summary: str | None, missing: Missing
) -> list[str | None]:
    """What the model behind `endpoint` restores for each block of `mask`; None where no answer came.

    A block that a complete answer leaves out is restored to nothing, "": were it missing, a summary of which
    only the easy blocks can be restored would be measured on these alone.
    """
    try:
        reply = await endpoint.chat(reconstruction_prompt(instance, mask, summary))
    except EndpointError as error:
        missing.add(error.kind)
        return [None] * len(mask)
    restored = read_reconstruction(reply.content or "", len(mask))
    if reply.finish_reason == "length":
        missing.add("truncated")
        return restored
    if all(text is None for text in restored):
        missing.add("no_block")
        return restored
    missing.add(None)
    return [text or "" for text in restored]


async def judge_summary(
    endpoint: Endpoint, judge: Judge, instance: Instance, summary: str | None, missing: Missing
) -> list[list[Judgement | None]]:
    """Verdicts on every hidden block of every mask, in order: what `reconstruct.reward.quality` takes."""

    async def of_block(index: int, restored: str | None) -> Judgement | None:
        return None if restored is None else await judge(instance.blocks[index].text, restored)

    async def of_mask(mask: list[int]) -> list[Judgement | None]:
        restored = await restore(endpoint, instance, mask, summary, missing)
        return list(await asyncio.gather(*map(of_block, mask, restored)))

    return list(await asyncio.gather(*map(of_mask, instance.masks)))
