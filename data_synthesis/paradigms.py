"""How an agent keeps within its window (ReSum, arXiv 2509.13313, section 4): what is done before each turn.

Each paradigm makes room when it is due, or says how the run ends: a full context never grows on. None of them
takes a turn out of the trace; a border or a cut says from where on the model sees less.
"""

from bisect import bisect_left

from condensery.context import MEMORY, seen_behind
from condensery.message import closed_positions
from condensery.reply import REFUSALS
from condensery.tokens import RequestCounter
from condensery.trajectory import Border, Termination
from condensery.triggers import compaction_due
from condensery.units import unit_starts
from data_synthesis.run_state import Run
from data_synthesis.summarizer import ask_summary


async def make_room(run: Run) -> Termination | None:
    match run.agent.paradigm:
        case "react":
            return _end_if_full(run)
        case "recent":
            return _keep_newest(run)
        case "masking":
            return _mask_results(run)
        case "mem1":
            return _keep_memory(run)
        case "resum":
            return await _summarize(run)


def _end_if_full(run: Run) -> Termination | None:
    return "token_limit" if run.num_visible_tokens() >= run.limits.full_tokens else None


def _keep_newest(run: Run) -> Termination | None:
    """Recent History: the head, and of all turns the newest that fit."""
    messages = run.trajectory.messages
    if run.num_visible_tokens() < run.limits.budget_tokens:
        return None
    starts = [p for p in closed_positions(messages) if run.trajectory.head <= p < len(messages)]
    borders = [Border(position=len(messages), start=start) for start in starts]
    return _see_less(run, borders)


def _mask_results(run: Run) -> Termination | None:
    """Observation masking: all turns stay, and of the tool results the newest keep their text."""
    messages = run.trajectory.messages
    if run.num_visible_tokens() < run.limits.budget_tokens:
        return None
    head = run.trajectory.head
    ends = [p + 1 for p, message in enumerate(messages) if message.role == "tool"]
    borders = [Border(position=len(messages), start=head, masked_before=end) for end in ends]
    return _see_less(run, borders)


def _see_less(run: Run, borders: list[Border]) -> Termination | None:
    """Draw the first of `borders`, which show ever less, that leaves no more than the newest share of the
    window; where all leave more, the first that is under the trigger, or the last if it fits at all."""

    def num_tokens(border: Border) -> int:
        counter = RequestCounter(run.agent.tokenizer, run.agent.tools.schemas)
        return counter.count(seen_behind(run.trajectory, border, border.position))

    limits = run.limits
    for most in (limits.newest_tokens, limits.budget_tokens - 1, limits.full_tokens - 1):
        first = bisect_left(borders, True, key=lambda border: num_tokens(border) <= most)
        if first < len(borders):
            run.trajectory.borders.append(borders[first])
            return None
    return _end_if_full(run)


def _keep_memory(run: Run) -> Termination | None:
    """MEM1: each turn rewrites a memory; of all turns the model sees the last that did, and what followed."""
    messages, borders = run.trajectory.messages, run.trajectory.borders
    last = len(messages) - 1
    while last >= run.trajectory.head and not _has_memory(messages[last].content):
        last -= 1
    if last > (borders[-1].start if borders else run.trajectory.head):
        borders.append(Border(position=len(messages), start=last))
    return _end_if_full(run)


def _has_memory(text: str) -> bool:
    found = MEMORY.search(text)
    return found is not None and bool(found[1].strip())


async def _summarize(run: Run) -> Termination | None:
    """ReSum: when it is due, an external summarizer rewrites what was seen."""
    num_tokens = run.num_visible_tokens()
    is_full = num_tokens >= run.limits.full_tokens
    position = _due_position(run, num_tokens)
    if position is None:
        return None
    if run.agent.summarizer is None or position <= _last_cut(run):
        return "token_limit" if is_full else None
    # A summarizer that has just failed twice is left alone for a while, unless there is no room to wait.
    if run.rounds < run.ask_again_round and not is_full:
        return None
    if not await _compact(run, position, num_tokens):
        run.ask_again_round = run.rounds + run.limits.cooldown_rounds
        return "summary_failed" if is_full else None
    run.last_cut_round = run.rounds
    num_left = run.num_visible_tokens()
    if num_left >= run.limits.budget_tokens:  # accepted, but the next round would ask again
        run.ask_again_round = run.rounds + run.limits.cooldown_rounds
    return "token_limit" if num_left >= run.limits.full_tokens else None


def _due_position(run: Run, num_tokens: int) -> int | None:
    """Up to which turn history is to be replaced now, if at all. A cut inside an open call would leave an
    orphan that no chat template renders."""
    limits, messages = run.limits, run.trajectory.messages
    rounds_since = run.rounds - run.last_cut_round
    if compaction_due(num_tokens, limits.budget_tokens, rounds_since, limits.every_rounds):
        return closed_positions(messages)[-1]
    if limits.unit_tokens is None or num_tokens < limits.unit_tokens:
        return None
    # The turn that opens the next unit shows that the one before it has closed.
    starts = unit_starts(messages)
    return starts[-1] if starts and starts[-1] > _last_cut(run) else None


def _last_cut(run: Run) -> int:
    accepted = [cut.position for cut in run.trajectory.cuts if cut.summary is not None]
    return max([run.trajectory.head, *accepted])


async def _compact(run: Run, position: int, num_tokens: int) -> bool:
    """Ask for a summary of all that expired, once more if it fails. Every answer is recorded as a cut."""
    run.learn_facts()
    for _ in range(2):
        cut, error = await ask_summary(run.agent, run.trajectory, position, num_tokens, run.journal)
        # Who refuses this request will refuse it again: repeating the run would bring nothing.
        run.error = None if error and error.kind in REFUSALS else error
        run.trajectory.cuts.append(cut)
        if cut.summary is not None:
            return True
    return False
