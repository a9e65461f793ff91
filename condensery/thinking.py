"""Whether a summarizer thinks before it writes: one setting for training, serving, parsing and export."""

from typing import Literal

# keep: the teacher's reasoning is learned; empty: a thought that closes at once; none: no thought at all.
Thinking = Literal["keep", "empty", "none"]
