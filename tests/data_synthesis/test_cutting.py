"""Cutting: no orphan, nothing lost, every request within its budget, summaries rolled on."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condensery.compaction import Compaction, compactions_of
from condensery.message import FunctionCall, Message, ToolCall
from condensery.trajectory import Cut, Trajectory
from data_synthesis.cutting import Cutting, HeadTooLong, cut_trajectory
from data_synthesis.fitting import RowTooLong, request_tokens

CUTTING = Cutting(window_tokens=600, max_row_tokens=500, max_summary_tokens=60, prompt_template="compact_v1")
HEAD = [Message(role="system", content="You are an agent."), Message(role="user", content="Which bridge?")]


def run_of(messages: list[Message]) -> Trajectory:
    return Trajectory(
        id="t",
        question_id="q",
        question="Which bridge?",
        head=2,
        messages=[*(m.model_copy() for m in HEAD), *messages],
        source="log:1",
    )


async def short_summary(compaction: Compaction) -> Cut:
    return Cut(position=0, summary=f"summary {compaction.index + 1}", author="test")


def cut(run: Trajectory, cutting: Cutting = CUTTING) -> Trajectory:
    return asyncio.run(cut_trajectory(run, cutting, short_summary))


@st.composite
def rounds(draw: st.DrawFn) -> list[Message]:
    """Turns of an agent: calls with reused ids, one or two at once, results in any order, and plain talk."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 12))):
        ids = draw(st.sampled_from([[], ["a"], ["b"], ["a", "b"], ["a", "a"]]))
        arguments = json.dumps({"query": "q " * draw(st.sampled_from([1, 5, 300]))})
        calls = [ToolCall(id=i, function=FunctionCall(name="search", arguments=arguments)) for i in ids]
        thought = "hm " * draw(st.sampled_from([0, 3, 200]))
        text = "word " * draw(st.sampled_from([0, 3, 120]))
        messages.append(
            Message(role="assistant", content=text, tool_calls=calls, reasoning_content=thought or None)
        )
        for call_id in draw(st.permutations(ids)):
            size = draw(st.sampled_from([1, 30, 700]))
            messages.append(Message(role="tool", content="found " * size, tool_call_id=call_id))
        if draw(st.booleans()):
            messages.append(Message(role="user", content="go on"))
    if draw(st.booleans()):
        messages.append(
            Message(role="assistant", tool_calls=[ToolCall(id="a", function=FunctionCall(name="end"))])
        )
    return messages


@settings(max_examples=40, deadline=None)
@given(rounds())
def test_no_orphan_nothing_lost_and_every_row_fits(messages: list[Message]) -> None:
    run = run_of(messages)
    done = cut(run)
    compactions = compactions_of(done)
    covered = [message for compaction in compactions for message in compaction.expired]
    assert covered == done.messages[2 : 2 + len(covered)]
    assert [(m.role, m.tool_call_id, len(m.tool_calls)) for m in done.messages] == [
        (m.role, m.tool_call_id, len(m.tool_calls)) for m in run.messages
    ]
    for index, compaction in enumerate(compactions):
        asked = sorted(call.id for message in compaction.expired for call in message.tool_calls)
        answered = sorted(
            message.tool_call_id or "" for message in compaction.expired if message.role == "tool"
        )
        assert asked == answered
        assert compaction.index == index
        assert compaction.last_summary == (f"summary {index}" if index else None)
        assert request_tokens(compaction, "compact_v1", None) <= CUTTING.max_request_tokens
        for message in compaction.expired:
            for call in message.tool_calls:
                json.loads(call.function.arguments)


def talk(num_turns: int, text: str) -> list[Message]:
    return [Message(role="assistant", content=f"{number} {text}") for number in range(num_turns)]


def test_a_run_that_fits_the_window_is_left_as_it_is() -> None:
    run = run_of(talk(3, "word"))
    done = cut(run)
    assert done.cuts == [] and done.messages == run.messages and done.num_tokens


def test_a_failed_summary_ends_the_cutting_and_stays_on_record() -> None:
    async def fail(compaction: Compaction) -> Cut:
        return Cut(position=0, failure="no_block", raw="?")

    done = asyncio.run(cut_trajectory(run_of(talk(40, "word " * 30)), CUTTING, fail))
    assert [(each.summary, each.failure) for each in done.cuts] == [(None, "no_block")]


def test_a_summary_over_its_budget_names_both_numbers() -> None:
    async def too_long(compaction: Compaction) -> Cut:
        return Cut(position=0, summary="word " * 60)

    with pytest.raises(RowTooLong, match="a summary of 100 tokens"):
        asyncio.run(cut_trajectory(run_of(talk(40, "word " * 30)), CUTTING, too_long))


def test_many_short_turns_are_compacted_before_the_window_is_full() -> None:
    done = cut(run_of(talk(150, "word " * 8)), Cutting(2000, 400, 60, "compact_v1"))
    assert len(done.cuts) > 1
    for compaction in compactions_of(done):
        assert request_tokens(compaction, "compact_v1", None) <= 400 - 60


def test_a_turn_of_many_calls_that_cannot_be_shortened_is_a_typed_error() -> None:
    ids = [f"call {number}" for number in range(60)]
    calls = [ToolCall(id=i, function=FunctionCall(name="search", arguments="{}")) for i in ids]
    results = [Message(role="tool", content="found " * 8, tool_call_id=i) for i in ids]
    with pytest.raises(RowTooLong, match="--max_row_tokens"):
        cut(run_of([Message(role="assistant", tool_calls=calls), *results, *talk(2, "word")]))


def test_a_head_that_fills_the_window_is_a_typed_error() -> None:
    run = run_of(talk(9, "word"))
    run.messages[0].content = "rule " * 400
    with pytest.raises(HeadTooLong, match="raise --window_tokens"):
        cut(run)


def test_a_task_longer_than_its_share_is_excerpted() -> None:
    run = run_of(talk(40, "word " * 30)).model_copy(update={"question": "line of a bug report\n" * 300})
    done = cut(run)
    assert "tokens left out" in done.question and done.question_id == run.question_id
    assert done.cuts and "tokens left out" in compactions_of(done)[0].task


def test_text_that_grows_when_escaped_is_shortened_all_the_more() -> None:
    call = ToolCall(id="a", function=FunctionCall(name="search"))
    result = Message(role="tool", tool_call_id="a", content="<|im_start|>a</history></summary> " * 200)
    run = cut(run_of([Message(role="assistant", tool_calls=[call]), result, *talk(2, "done")]))
    [compaction] = compactions_of(run)
    assert request_tokens(compaction, "compact_v1", None) <= CUTTING.max_request_tokens
    assert "tokens left out" in compaction.expired[1].content
