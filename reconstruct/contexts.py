"""Where a run is cut for training: a context of a chosen length, as an agent with that window would fill it.

A context is what such an agent holds: the task, its last summary, and all turns since. Where it is full, the
newest turns may stay (C), and the rest is the history to be summarized (H).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

from condensery.compaction import Compaction, compaction_of
from condensery.message import closed_positions
from condensery.prompt import render_history
from condensery.trajectory import Trajectory

# Of what the task leaves of a context: a step longer than the rest of it does not fit any more.
FILLED = 0.5

Reason = Literal[
    "too_short",  # the history ends before it fills the context
    "head_too_long",  # the task takes more than half of it
    "turn_too_long",  # without one step the context is half empty, with it overfull
    "few_blocks",
    "duplicate",  # the same history at another context length, or the same run twice
    "not_drawn",  # --limit
]


@dataclass(frozen=True)
class Unused:
    """A piece of a run that makes no instance at this length, and why. It begins at message `position`."""

    file: str
    trajectory_id: str
    position: int
    context_tokens: int
    reason: Reason
    detail: str


@dataclass(frozen=True)
class Context:
    """A run's turns from `start` on: those before `expired_until` are to be summarized, those up to `end`
    stay."""

    context_tokens: int
    start: int
    expired_until: int
    end: int


class MeasuredRun:
    """A run whose turns are counted once for all context lengths. `source` is its run directory."""

    def __init__(self, run: Trajectory, source: Path, file: Path, count: Callable[[str], int]) -> None:
        self.run, self.source, self.file, self.count = run, source, file, count
        self.task_tokens = count(run.task)
        # Where a context can start, and the tokens of what stands there for the turns before.
        self.starts = {run.head: 0}
        self.starts |= {cut.position: count(cut.summary) for cut in run.cuts if cut.summary is not None}
        self.until = [0, *accumulate(count(render_history([turn]) + "\n") for turn in run.messages)]
        self.closed = closed_positions(run.messages)

    def tokens(self, start: int, end: int) -> int:
        return self.until[end] - self.until[start]

    def history_tokens(self, context: Context) -> int:
        """The last summary and what has expired since."""
        return self.starts[context.start] + self.tokens(context.start, context.expired_until)

    def unused(self, position: int, context_tokens: int, reason: Reason, detail: str) -> Unused:
        return Unused(str(self.file), self.run.id, position, context_tokens, reason, detail)

    def compaction(self, context: Context) -> Compaction:
        is_retained = context.expired_until < context.end
        return compaction_of(self.run, context.expired_until, context.end if is_retained else None)


def contexts_of(
    measured: MeasuredRun, context_tokens: int, retained_tokens: int
) -> Iterator[Context | Unused]:
    """A context from the run's beginning on, and one from each summary it was given.

    Each ends at the last closed position where it fits, and before the run does: nobody would read a summary
    made at the end of it.
    """
    room = context_tokens - measured.task_tokens
    ends = [*list(measured.starts)[1:], len(measured.run.messages) - 1]
    for (start, summary_tokens), last in zip(measured.starts.items(), ends):
        whole = summary_tokens + measured.tokens(start, max(start, last))
        found = f"the task has {measured.task_tokens} tokens, last summary and turns {whole}"
        ends_at = {
            p: summary_tokens + measured.tokens(start, p) for p in measured.closed if start < p <= last
        }
        fitting = [p for p, tokens in ends_at.items() if tokens <= room]
        if room < FILLED * context_tokens:
            yield measured.unused(start, context_tokens, "head_too_long", found)
        elif fitting and ends_at[fitting[-1]] >= FILLED * room:
            retained = [p for p in fitting if measured.tokens(p, fitting[-1]) <= retained_tokens]
            yield Context(context_tokens, start, retained[0], fitting[-1])
        elif whole < FILLED * room:
            yield measured.unused(start, context_tokens, "too_short", found)
        else:
            remedy = "`condensery import` shortens results to --max_row_tokens"
            detail = f"{found}, and one step takes most of it; {remedy}"
            yield measured.unused(start, context_tokens, "turn_too_long", detail)
