"""The paradigms of one loop: what each lets the model see, that the trace tells it, how budgets end runs."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from condensery.compaction import Compaction, compactions_of
from condensery.context import MASKED, visible_messages
from condensery.message import FunctionCall, Message, ToolCall
from condensery.reply import Reply
from condensery.tokens import RequestCounter
from condensery.trajectory import Paradigm, Trajectory
from data_synthesis.agent import Agent, Limits
from data_synthesis.question import Question
from data_synthesis.rollout import rollout

QUESTION = Question(id="q1", question="Which of the mills of Harrow Bay is the oldest?")
SCHEMAS: list[dict] = []
LIMITS = Limits(window_tokens=2000, share=0.7, reserve_tokens=100, newest_share=0.4)
SUMMARY = "<summary>\nMill 1 was built in 1843.\n</summary>"


class Mills:
    schemas = SCHEMAS

    async def call(self, name: str, arguments: str) -> str:
        return f"{arguments}: built in 1843, of grey stone, by the river. " * 6


def turn(number: int, name: str, words: str, text: str = "") -> Reply:
    call = ToolCall(
        id=f"call_{number}", function=FunctionCall(name=name, arguments=json.dumps({"query": [words]}))
    )
    return Reply(Message(role="assistant", content=text or f"Step {number}.", tool_calls=[call]))


class Searcher:
    """Reads on one mill after the other: a search, then a visit; keeps what it saw each time."""

    def __init__(self, num_turns: int, memory: bool = False) -> None:
        self.num_turns, self.memory = num_turns, memory
        self.seen: list[list[Message]] = []

    async def __call__(self, question: Question, messages: list[Message]) -> Reply:
        self.seen.append([message.model_copy(deep=True) for message in messages])
        number = len(self.seen)
        if number > self.num_turns:
            return Reply(Message(role="assistant", content="<answer>mill 1</answer>"))
        text = f"<memory>{number} mills read</memory>" if self.memory else ""
        return turn(number, "visit" if number % 2 == 0 else "search", f"mill number {number}", text)


async def summarize(compaction: Compaction) -> Reply:
    return Reply(Message(role="assistant", content=SUMMARY))


def run(explorer: Searcher, paradigm: Paradigm, limits: Limits = LIMITS) -> Trajectory:
    agent = Agent(explorer, Mills(), summarize, author="scripted", limits=limits, paradigm=paradigm)
    return asyncio.run(rollout(agent, QUESTION, "t1")).trajectory


@pytest.mark.parametrize("paradigm", ["react", "recent", "masking", "resum", "mem1"])
def test_the_trace_tells_what_the_model_saw_at_every_turn(paradigm: Paradigm) -> None:
    explorer = Searcher(16, memory=paradigm == "mem1")
    trajectory = run(explorer, paradigm)
    turns = [p for p, message in enumerate(trajectory.messages) if message.role == "assistant"]
    assert explorer.seen == [visible_messages(trajectory, position) for position in turns]
    restored = Trajectory.model_validate_json(trajectory.model_dump_json())
    assert explorer.seen == [visible_messages(restored, position) for position in turns]
    assert max(RequestCounter(None).count(seen) for seen in explorer.seen) < LIMITS.full_tokens
    assert trajectory.paradigm == paradigm
    ended = {"react": "token_limit"}.get(paradigm, "answer")
    assert trajectory.termination == ended


def test_recent_history_keeps_the_newest_turns_and_the_question() -> None:
    explorer = Searcher(16)
    trajectory = run(explorer, "recent")
    assert len(trajectory.borders) > 1 and not trajectory.cuts
    border = trajectory.borders[0]
    (seen,) = [seen for seen in explorer.seen if len(seen) == 1 + border.position - border.start][-1:]
    assert seen[0] == trajectory.messages[0] and seen[1].role == "assistant"
    assert RequestCounter(None).count(visible_messages(trajectory, border.position)) <= LIMITS.newest_tokens


def test_masking_keeps_all_turns_and_the_newest_results() -> None:
    explorer = Searcher(16)
    trajectory = run(explorer, "masking")
    last = explorer.seen[-1]
    assert len(last) == len(trajectory.messages) - 1
    masked = [message.content == MASKED for message in last if message.role == "tool"]
    assert masked == sorted(masked, reverse=True) and masked[0] and not masked[-1]


def test_a_memory_stands_for_all_turns_before_it_and_a_turn_without_one_takes_none_away() -> None:
    explorer = Searcher(6, memory=True)
    trajectory = run(explorer, "mem1")
    assert [len(seen) for seen in explorer.seen] == [1, 3, 3, 3, 3, 3, 3]
    assert explorer.seen[-1][1].content == "<memory>6 mills read</memory>"
    assert [border.start for border in trajectory.borders] == [1, 3, 5, 7, 9, 11][1:]
    without = Searcher(6)
    assert run(without, "mem1", replace(LIMITS, window_tokens=20_000)).borders == []
    assert len(without.seen[-1]) == 13


def test_a_closed_unit_is_replaced_and_the_turn_that_opened_the_next_one_stays() -> None:
    explorer = Searcher(16)
    trajectory = run(explorer, "resum", replace(LIMITS, unit_share=0.2))
    compactions = compactions_of(trajectory)
    assert trajectory.cuts and all(cut.made_at == cut.position + 2 for cut in trajectory.cuts)
    assert {compaction.unit for compaction in compactions} == {"closed"}
    assert all([m.role for m in compaction.retained] == ["assistant", "tool"] for compaction in compactions)
    full = run(Searcher(16), "resum", replace(LIMITS, share=0.3))
    assert {compaction.unit for compaction in compactions_of(full)} == {"open", "closed"}


BUDGETS: list[tuple[Limits, str]] = [
    (replace(LIMITS, max_calls=3), "call_limit"),
    (replace(LIMITS, max_run_tokens=900), "token_budget"),
    (replace(LIMITS, max_run_seconds=1e-9), "time_limit"),
]


@pytest.mark.parametrize(("limits", "termination"), BUDGETS)
def test_each_budget_has_its_own_end(limits: Limits, termination: str) -> None:
    trajectory = run(Searcher(16), "resum", limits)
    assert trajectory.termination == termination and trajectory.prediction is None


def test_a_forced_answer_is_told_from_one_of_its_own_accord() -> None:
    explorer: Callable = Searcher(2)
    assert run(explorer, "resum", replace(LIMITS, force_answer=True)).forced is False
    assert run(Searcher(2), "resum", replace(LIMITS, force_answer=True, max_calls=3)).forced is True
    given_up = run(Searcher(9), "resum", replace(LIMITS, force_answer=True, max_calls=3))
    assert (given_up.forced, given_up.termination) == (False, "call_limit")
