"""One training context: a history to be summarized, divided into blocks, and the masks it is tested with."""

from pydantic import BaseModel, ConfigDict

from condensery.compaction import Compaction
from reconstruct.blocks import Block


class Instance(BaseModel):
    """`compaction` is what the summarizer is asked. A mask holds indices into `blocks`, sorted.

    `blocks` may begin with turns that expired before `compaction.last_summary` was written (kind "memory"):
    no summary can hold more of them than that one does, but it can throw it away. `context_tokens` is the
    length that was asked for, `source` the run directory it came from.
    """

    model_config = ConfigDict(extra="forbid")
    id: str
    compaction: Compaction
    context_tokens: int
    blocks: list[Block]
    masks: list[list[int]]
    source: str
    language: str
