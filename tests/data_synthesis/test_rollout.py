"""The ReSum loop: when it compacts, what the model sees, how runs end, what no summary failure may touch."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from condensery.compaction import Compaction, compactions_of
from condensery.context import visible_messages
from condensery.message import FunctionCall, Message, ToolCall, closed_positions
from condensery.reply import EndpointError, Reply, read_completion
from condensery.tokens import RequestCounter
from data_synthesis.agent import Agent, Limits
from data_synthesis.question import Question
from data_synthesis.rollout import LAST_CALL, NO_TURN, rollout
from data_synthesis.run_state import Outcome
from tests.scripted_endpoint import completion, say

QUESTION = Question(
    id="q1", question="When was the mill of Harrow Bay built?", constraints=["Only use records."]
)
SCHEMAS: list[dict] = []
RESULT = "The mill of Harrow Bay was built in 1843. " * 10


class EchoTools:
    schemas = SCHEMAS

    async def call(self, name: str, arguments: str) -> str:
        values = json.loads(arguments)
        if name != "search":
            raise ValueError(f"unknown tool {name!r}; there is search")
        return f"{values['query']}: {RESULT}"


def search(number: int, arguments: str | None = None, name: str = "search") -> Reply:
    function = FunctionCall(name=name, arguments=arguments or json.dumps({"query": f"mill {number}"}))
    call = ToolCall(id=f"call_{number}", function=function)
    return Reply(Message(role="assistant", content=f"Look, step {number}.", tool_calls=[call]), "tool_calls")


class Searcher:
    """Searches `num_searches` times, then answers; keeps what it saw each time, as text."""

    def __init__(self, num_searches: int) -> None:
        self.num_searches = num_searches
        self.seen: list[list[Message]] = []

    async def __call__(self, question: Question, messages: list[Message]) -> Reply:
        self.seen.append([message.model_copy(deep=True) for message in messages])
        if len(self.seen) <= self.num_searches:
            return search(len(self.seen))
        return Reply(Message(role="assistant", content="<answer>1843</answer>"))


def summarizer(*contents: str | None) -> Callable:
    """Answers with these texts in turn, the last one for ever."""
    remaining = list(contents)

    async def summarize(compaction: Compaction) -> Reply:
        content = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return read_completion(say(content))

    return summarize


GOOD = "<summary>\nThe mill of Harrow Bay was built in 1843.\n</summary>"
SMALL = Limits(window_tokens=2000, share=0.5, reserve_tokens=100)


def run(
    explorer: Callable, summarize: Callable | None = None, limits: Limits = SMALL, **settings: object
) -> Outcome:
    agent = Agent(explorer, EchoTools(), summarize, author="scripted", limits=limits, **settings)
    return asyncio.run(rollout(agent, QUESTION, "t1"))


def test_history_becomes_question_and_summary_and_the_trace_keeps_everything() -> None:
    explorer = Searcher(12)
    trajectory = run(explorer, summarizer(GOOD), system="You search.").trajectory
    assert (trajectory.termination, trajectory.prediction) == ("answer", "1843")
    assert len(trajectory.messages) == 2 + 12 * 2 + 1
    first = trajectory.cuts[0]
    assert first.summary == "The mill of Harrow Bay was built in 1843." and first.raw == GOOD
    (after,) = [seen for seen in explorer.seen if len(seen) == 2 and "1843" in seen[1].content][:1]
    assert after[0].content == "You search." and "Only use records." in after[1].content
    assert "<summary>\nThe mill" in after[1].content
    assert trajectory.num_tokens == RequestCounter(None).count(trajectory.messages)


def test_what_the_model_saw_can_be_derived_from_the_trace() -> None:
    explorer = Searcher(12)
    trajectory = run(explorer, summarizer(GOOD, "nothing here", GOOD)).trajectory
    assert any(cut.failure for cut in trajectory.cuts)
    turns = [p for p, message in enumerate(trajectory.messages) if message.role == "assistant"]
    assert explorer.seen == [visible_messages(trajectory, turn) for turn in turns]


def test_context_stays_under_the_window_and_cuts_stand_where_calls_are_closed() -> None:
    explorer = Searcher(30)
    trajectory = run(explorer, summarizer(GOOD)).trajectory
    assert max(RequestCounter(None).count(seen) for seen in explorer.seen) < SMALL.full_tokens
    assert len(trajectory.cuts) > 3
    assert {cut.position for cut in trajectory.cuts} <= set(closed_positions(trajectory.messages))
    compactions = compactions_of(trajectory)
    assert [compaction.index for compaction in compactions] == list(range(len(compactions)))
    assert sum(len(compaction.expired) for compaction in compactions) == trajectory.cuts[-1].position - 1


def test_every_rounds_compacts_without_looking_at_tokens() -> None:
    trajectory = run(Searcher(7), summarizer(GOOD), Limits(every_rounds=3)).trajectory
    assert [cut.position for cut in trajectory.cuts] == [1 + 2 * 3, 1 + 2 * 6]


def test_no_compaction_after_the_last_call() -> None:
    trajectory = run(Searcher(7), summarizer(GOOD), Limits(every_rounds=3, max_calls=3)).trajectory
    assert trajectory.termination == "call_limit" and trajectory.cuts == []
    assert trajectory.messages[-1].role == "tool" and RESULT in trajectory.messages[-1].content


def test_forced_answer_adds_a_turn_and_overwrites_nothing() -> None:
    limits = Limits(max_calls=4, force_answer=True)
    explorer = Searcher(3)
    trajectory = run(explorer, None, limits).trajectory
    assert (trajectory.termination, trajectory.prediction) == ("answer", "1843")
    assert [message.content for message in explorer.seen[-1][-1:]] == [LAST_CALL]
    assert RESULT in trajectory.messages[-3].content


def test_without_a_summarizer_a_full_context_ends_the_run() -> None:
    outcome = run(Searcher(60), None)
    assert outcome.trajectory.termination == "token_limit" and outcome.error is None


SUMMARY_FAILURES = [
    ("empty", say("")),
    ("whitespace", say(" \n ")),
    ("null", say(None)),
    ("thinking_only", say("<think>\nWhat matters is 1843.\n</think>\n")),
    ("thinking_only", say(None, reasoning_content="What matters is 1843.")),
    ("unclosed_thinking", say("<think>\nA <summary>1843</summary> perhaps")),
    ("unclosed_block", say("<summary>\nBuilt in 1843")),
    ("length", say(GOOD, "length")),
    ("two_blocks", say(GOOD + GOOD)),
    ("no_block", say("The mill was built in 1843.")),
    ("tool_call", say(None, tool_calls=[{"id": "1", "function": {"name": "search", "arguments": "{}"}}])),
    ("tool_call", say('<tool_call>{"name": "search", "arguments": {}}</tool_call>')),
    ("placeholder", say("<summary>\nFacts: ...\nOpen: N/A\n</summary>")),
    ("no_gain", say(f"<summary>\n{RESULT * 20}\n</summary>")),
    ("endpoint_error", completion(None, choices=[])),
]


@pytest.mark.parametrize(("failure", "answer"), SUMMARY_FAILURES)
def test_a_failed_summary_leaves_every_message_as_it_was(failure: str, answer: dict) -> None:
    """A typed reason in the record, one retry, a cooldown, and the agent's messages byte-identical."""
    asked: list[Compaction] = []

    async def failing(compaction: Compaction) -> Reply:
        asked.append(compaction)
        return read_completion(answer)

    untouched = Searcher(8)
    run(untouched, None, Limits())
    explorer = Searcher(8)
    trajectory = run(explorer, failing, Limits(every_rounds=5)).trajectory
    assert explorer.seen == untouched.seen
    assert [(cut.summary, cut.failure) for cut in trajectory.cuts] == [(None, failure)] * 4
    assert [cut.position for cut in trajectory.cuts] == [11, 11, 17, 17], (
        "asked again after the cooldown only"
    )
    assert asked[0] == asked[1] and trajectory.termination == "answer"


@pytest.mark.parametrize(
    "content",
    [
        f"What matters is 1843.\n</think>\n{GOOD}",
        "<summary>\nThe page says <summary>1843</summary> of the mill.\n</summary>",
        f"Here it is:\n```\n{GOOD}\n```",
    ],
)
def test_unusual_but_whole_summaries_pass(content: str) -> None:
    trajectory = run(Searcher(4), summarizer(content), Limits(every_rounds=3)).trajectory
    (cut,) = trajectory.cuts
    assert cut.failure is None and "1843" in (cut.summary or "")


def test_one_retry_heals_a_passing_failure() -> None:
    trajectory = run(Searcher(4), summarizer("", GOOD), Limits(every_rounds=3)).trajectory
    assert [cut.failure for cut in trajectory.cuts] == ["empty", None]
    assert len(compactions_of(trajectory)) == 2


def test_a_full_context_without_a_summary_is_a_typed_end() -> None:
    outcome = run(Searcher(60), summarizer("nothing"))
    trajectory = outcome.trajectory
    assert trajectory.termination == "summary_failed" and outcome.error is None
    assert {cut.failure for cut in trajectory.cuts} == {"no_block"}
    assert len(trajectory.cuts) < 12, "the breaker holds between the trigger and the full window"


def test_a_summarizer_that_is_down_is_named_as_the_reason() -> None:
    async def down(compaction: Compaction) -> Reply:
        raise EndpointError("connection", "refused")

    outcome = run(Searcher(60), down)
    assert outcome.trajectory.termination == "summary_failed"
    assert outcome.error is not None and outcome.error.kind == "connection"


def test_a_summarizer_that_comes_back_leaves_a_good_run() -> None:
    replies = [EndpointError("server", "503")] * 2 + [None] * 9

    async def flaky(compaction: Compaction) -> Reply:
        error = replies.pop(0)
        if error:
            raise error
        return read_completion(say(GOOD))

    outcome = run(Searcher(8), flaky, Limits(every_rounds=3))
    assert [cut.failure for cut in outcome.trajectory.cuts] == ["endpoint_error", "endpoint_error", None]
    assert outcome.error is None and outcome.trajectory.termination == "answer"


def test_an_explorer_that_is_down_never_becomes_text() -> None:
    async def down(question: Question, messages: list[Message]) -> Reply:
        raise EndpointError("server", "500 boom")

    outcome = run(down)
    assert outcome.trajectory.termination == "endpoint_error" and len(outcome.trajectory.messages) == 1
    assert outcome.error is not None and "boom" in outcome.error.detail


def scripted(*replies: Reply) -> Callable:
    remaining = list(replies)

    async def explore(question: Question, messages: list[Message]) -> Reply:
        return remaining.pop(0)

    return explore


ANSWER = Reply(Message(role="assistant", content="1843"))
EMPTY = Reply(Message(role="assistant", content="  "))


def test_calls_that_cannot_be_carried_out_are_answered_with_the_reason() -> None:
    rows: list[dict] = []
    explorer = scripted(search(1, name="browse"), search(2, arguments="{'query'"), ANSWER)
    outcome = asyncio.run(rollout(Agent(explorer, EchoTools()), QUESTION, "t1", log=rows.append))
    results = [message.content for message in outcome.trajectory.messages if message.role == "tool"]
    assert results[0] == "Error: unknown tool 'browse'; there is search"
    assert results[1].startswith("Error: Expecting")
    assert [row.get("failed") for row in rows if row["kind"] == "tool"] == [True, True]
    assert outcome.trajectory.prediction == "1843"


def test_turns_without_call_or_answer_are_corrected_then_given_up() -> None:
    trajectory = run(scripted(EMPTY, ANSWER)).trajectory
    assert [message.content for message in trajectory.messages[1:]] == ["  ", NO_TURN, "1843"]
    trajectory = run(scripted(EMPTY, replace(ANSWER, finish_reason="length"), EMPTY)).trajectory
    assert trajectory.termination == "unparsable_call" and trajectory.prediction is None
    assert trajectory.messages[-1].role == "assistant", "no correction that nobody read"


def test_a_request_too_long_for_the_summarizer_goes_out_as_marked_excerpts() -> None:
    rows: list[dict] = []
    limits = Limits(every_rounds=4, max_prompt_tokens=700)
    agent = Agent(Searcher(5), EchoTools(), summarizer(GOOD), limits=limits, prompt_template="compact_v1")
    asyncio.run(rollout(agent, QUESTION, "t1", log=rows.append))
    (row,) = [row for row in rows if row["kind"] == "summary"]
    prompt = row["prompt"][0]["content"]
    assert row["excerpted_tokens"] > 0 and "tokens left out" in prompt
    assert RequestCounter(None).count([Message(role="user", content=prompt)]) <= 720


def test_a_request_that_cannot_fit_is_a_failure_without_a_call() -> None:
    limits = Limits(every_rounds=4, max_prompt_tokens=100)
    outcome = run(Searcher(5), summarizer(GOOD), limits)
    trajectory = outcome.trajectory
    assert outcome.error is None, "no outage: repeating it would not help"
    assert {cut.failure for cut in trajectory.cuts} == {
        "endpoint_error"
    } and trajectory.termination == "answer"


def test_every_call_is_logged_with_its_costs() -> None:
    rows: list[dict] = []
    agent = Agent(Searcher(4), EchoTools(), summarizer(GOOD), "teacher", limits=Limits(every_rounds=3))
    asyncio.run(rollout(agent, QUESTION, "t1", log=rows.append))
    kinds = [row["kind"] for row in rows]
    assert kinds == ["explorer", "tool"] * 3 + ["summary"] + ["explorer", "tool", "explorer"]
    (row,) = [row for row in rows if row["kind"] == "summary"]
    assert row["message"]["content"] == GOOD and row["prompt_tokens"] == 7 and row["failure"] is None
    assert {
        "trajectory_id",
        "key",
        "author",
        "prompt",
        "latency_seconds",
        "attempts",
        "time",
    } <= set(row)
