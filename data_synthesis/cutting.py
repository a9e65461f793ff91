"""Cut a logged run where an agent with a smaller window would have been compacted, and summarize it there.

The run is read as the agent would have lived it: its context is head, last summary and what came since.
When that fills the window, history up to the last closed position is replaced by a summary, and the run goes
on from it, so that later summaries are asked to carry earlier ones over (ReSum's rolling refinement).
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import accumulate

from condensery.compaction import Compaction, compaction_of
from condensery.message import closed_positions
from condensery.prompt import render_history
from condensery.tokens import Tokenizer, count_tokens
from condensery.trajectory import Cut, Trajectory
from data_synthesis.excerpt import excerpt
from data_synthesis.fitting import RowTooLong, fit

TRIGGER_SHARE = 0.9  # of the window, as in ReSum
TASK_SHARE = 0.25  # of a row: a bug report with its logs may be longer than the row

BLOCK_TOKENS = 16  # the tags around a summary and the end of its turn

# Asks for a summary; the cut it returns gets its position here.
Summarize = Callable[[Compaction], Awaitable[Cut]]


class HeadTooLong(ValueError):
    """The turns that no compaction touches fill the window."""


@dataclass(frozen=True)
class Cutting:
    """The window of the agent, and what one training row (request and summary) may hold, in tokens."""

    window_tokens: int
    max_row_tokens: int
    max_summary_tokens: int
    prompt_template: str
    tokenizer: Tokenizer | None = None

    @property
    def max_request_tokens(self) -> int:
        return self.max_row_tokens - self.max_summary_tokens - BLOCK_TOKENS

    def count(self, text: str) -> int:
        return count_tokens(text, self.tokenizer)


async def cut_trajectory(trajectory: Trajectory, cutting: Cutting, summarize: Summarize) -> Trajectory:
    """The run with its cuts; messages of a cut history are shortened where its request would not fit a row.

    After a failed summary the run stays uncut from there. Cuts that the log brought along are kept. Raises
    RowTooLong and HeadTooLong.
    """
    sizes = [cutting.count(render_history([message])) for message in trajectory.messages]
    run = _shorten_task(trajectory, cutting).model_copy(update={"cuts": [], "num_tokens": sum(sizes)})
    # The agent that wrote this log was compacted already: its own summaries are the real ones.
    if trajectory.cuts:
        for cut in trajectory.cuts:
            run = _fit_history(run, cut.position, cutting)
            run = run.model_copy(update={"cuts": [*run.cuts, cut]})
        return run
    while (position := next_position(run, sizes, cutting)) is not None:
        run, position = _fit_latest(run, position, cutting)
        compaction = compaction_of(run, position)
        cut = await summarize(compaction)
        num_tokens = cutting.count(cut.summary or "")
        # Never cut to size: half a summary teaches to stop in the middle.
        if num_tokens > cutting.max_summary_tokens:
            raise RowTooLong(f"a summary of {num_tokens} tokens; raise --max_summary_tokens")
        run = run.model_copy(update={"cuts": [*run.cuts, cut.model_copy(update={"position": position})]})
        if cut.summary is None:
            break
    return run


def next_position(run: Trajectory, sizes: list[int], cutting: Cutting) -> int | None:
    """The first closed position at which the context reaches the trigger; None if the run ends before it.

    Where that is the end of the run nothing is compacted: nobody would read the summary.
    """
    start, summary = (run.cuts[-1].position, run.cuts[-1].summary or "") if run.cuts else (run.head, "")
    budget = int(TRIGGER_SHARE * cutting.window_tokens)
    fixed = sum(sizes[: run.head]) + cutting.max_summary_tokens
    if fixed >= budget:
        raise HeadTooLong(
            f"head and summary take {fixed} of {budget} tokens before any history; raise --window_tokens"
        )
    context = sum(sizes[: run.head]) + cutting.count(summary)
    until = [0, *accumulate(sizes)]
    for position in closed_positions(run.messages):
        if start < position < len(run.messages) and context + until[position] - until[start] >= budget:
            return position
    return None


def _fit_latest(run: Trajectory, position: int, cutting: Cutting) -> tuple[Trajectory, int]:
    """Compact at `position`, or as late before it as the request fits a row: short turns cannot be shortened.

    Raises RowTooLong when not even the first closed piece fits.
    """
    if _fits(run, position, cutting):
        return _fit_history(run, position, cutting), position
    start = run.cuts[-1].position if run.cuts else run.head
    # What fits grows with every turn left out, so the last fitting position can be bisected.
    closed = [p for p in closed_positions(run.messages) if start < p < position] or [position]
    num_fitting = bisect_left(closed, True, key=lambda p: not _fits(run, p, cutting))
    last = closed[max(num_fitting - 1, 0)]
    return _fit_history(run, last, cutting), last


def _fits(run: Trajectory, position: int, cutting: Cutting) -> bool:
    try:
        _fit_history(run, position, cutting)
    except RowTooLong:
        return False
    return True


def _fit_history(run: Trajectory, position: int, cutting: Cutting) -> Trajectory:
    compaction = compaction_of(run, position)
    messages, num_removed = fit(
        compaction, cutting.prompt_template, cutting.max_request_tokens, cutting.tokenizer
    )
    if not num_removed:
        return run
    start = position - len(messages)
    return run.model_copy(update={"messages": [*run.messages[:start], *messages, *run.messages[position:]]})


def _shorten_task(run: Trajectory, cutting: Cutting) -> Trajectory:
    question, _ = excerpt(run.question, int(TASK_SHARE * cutting.max_request_tokens), cutting.tokenizer)
    return run.model_copy(update={"question": question})
