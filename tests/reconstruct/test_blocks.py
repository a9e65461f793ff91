"""Blocks are the history to the letter, end where a reader would end them, and have a kind by rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condensery.message import FunctionCall, Message, ToolCall
from condensery.prompt import render_history
from condensery.tokens import estimate_tokens
from reconstruct.blocks import blocks_of, join_blocks, kind_of, steps_of, turn_blocks
from tests.reconstruct.histories import call, compaction, result, steps, words

TEXT = st.text(alphabet="ab1,.! \n。，大桥<&;", max_size=120)
CALLS = st.lists(
    st.builds(ToolCall, id=st.sampled_from("xy"), function=st.just(FunctionCall(name="f"))), max_size=2
)
TURNS = st.one_of(
    st.builds(Message, role=st.sampled_from(["user", "assistant", "system"]), content=TEXT),
    st.builds(Message, role=st.just("assistant"), content=TEXT, tool_calls=CALLS, reasoning_content=TEXT),
    st.builds(Message, role=st.just("tool"), content=TEXT, tool_call_id=st.sampled_from("xy")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(TURNS, max_size=8), st.integers(1, 60))
def test_blocks_are_the_rendered_history_to_the_letter(messages: list[Message], block_tokens: int) -> None:
    assert join_blocks(turn_blocks(messages, block_tokens, estimate_tokens)) == render_history(messages)


@settings(max_examples=150, deadline=None)
@given(st.lists(TURNS, max_size=8), st.integers(1, 60))
def test_no_block_begins_with_the_first_result_of_a_call(messages: list[Message], block_tokens: int) -> None:
    blocks = turn_blocks(messages, block_tokens, estimate_tokens)
    text, starts = "", set()
    for block in blocks:
        text += ("" if block.continues or not text else "\n") + block.text
        starts.add(len(text) - len(block.text))
    for position in range(1, len(messages)):
        if messages[position - 1].tool_calls and messages[position].role == "tool":
            assert len(render_history(messages[:position])) + 1 not in starts


def test_steps_stay_whole_and_blocks_are_about_as_long_as_asked() -> None:
    messages = steps(12)
    blocks = turn_blocks(messages, 45, words)
    assert 5 <= len(blocks) <= 7
    assert all(block.text.startswith("[assistant]") and not block.continues for block in blocks)
    assert all(22 <= words(block.text) <= 68 for block in blocks)
    assert [len(step) for step in steps_of(messages)] == [2] * 12


def test_a_users_turn_begins_a_block_once_the_one_before_is_half_full() -> None:
    messages = [*steps(1), Message(role="user", content="Only sources before 1900."), *steps(1)]
    assert [block.kind for block in turn_blocks(messages, 30, words)] == ["result", "constraint"]


def test_a_long_result_is_divided_at_its_paragraphs_and_the_first_part_keeps_the_call() -> None:
    page = "\n\n".join(f"Paragraph {number} says that wheel {number} turns." for number in range(20))
    blocks = turn_blocks([call(1), result(1, page)], 21, words)
    assert blocks[0].text.startswith("[assistant] Look it up.") and "[tool] Paragraph 0" in blocks[0].text
    assert len(blocks) > 5 and all(block.text.startswith("Paragraph") for block in blocks[1:])
    assert {block.kind for block in blocks[1:]} == {"result"}
    assert join_blocks(blocks) == render_history([call(1), result(1, page)])


def test_a_long_line_is_divided_between_sentences_and_clauses_within_the_line() -> None:
    line = " ".join(f"Sentence {number} ends here." for number in range(40))
    blocks = turn_blocks([call(1), result(1, line)], 16, words)
    assert all(block.continues and block.text.startswith("Sentence") for block in blocks[1:])
    row = "{" + ", ".join(f'"key{number}": "value {number}"' for number in range(40)) + "}"
    assert len(turn_blocks([call(1), result(1, row)], 16, words)) > 3
    chinese = "。".join(f"第{number}座磨坊建于一八四三年" for number in range(40))
    blocks = turn_blocks([call(1), result(1, chinese)], 40, estimate_tokens)
    assert len(blocks) > 8 and all(block.text.startswith("第") for block in blocks[1:])


@pytest.mark.parametrize("line", ["A" * 300_000, "see the mill. " * 22_000])
def test_a_line_of_300_kb_is_one_block_unless_it_has_borders(line: str) -> None:
    blocks = turn_blocks([call(1), result(1, line), *steps(2)], 512, estimate_tokens)
    assert len(blocks) == 2 if "." not in line else len(blocks) > 100
    assert join_blocks(blocks) == render_history([call(1), result(1, line), *steps(2)])


def test_the_last_summary_comes_first_as_old_memory() -> None:
    memory = "\n".join(f"- Mill {number} was built in {1800 + number}." for number in range(12))
    blocks = blocks_of(compaction(steps(2), last_summary=memory), 20, words)
    kinds = [block.kind for block in blocks]
    assert kinds[:3] == ["memory"] * 3 and "memory" not in kinds[5:] and kinds[-1] == "result"
    assert blocks[0].text.startswith("[memory] - Mill 0") and "Mill 11" in "".join(b.text for b in blocks)
    assert blocks_of(compaction([]), 20, words) == []


def test_a_history_of_one_short_turn_is_one_block() -> None:
    assert [b.text for b in blocks_of(compaction([Message(role="assistant")]), 20, words)] == ["[assistant] "]


@pytest.mark.parametrize(
    ("role", "content", "kind"),
    [
        ("user", "Only sources before 1900.", "constraint"),
        ("system", "You must never book a flight.", "constraint"),
        ("system", "Today is Monday.", "text"),
        ("tool", "Built in 1843.", "result"),
        ("tool", "The page explains an error of 1843.", "result"),
        ("tool", "Error: no such mill", "error"),
        ("tool", "ValueError: bad year", "error"),
        ("tool", "OBSERVATION:\nERROR: no replacement was performed", "error"),
        ("tool", "[ERROR] timeout", "error"),
        ("tool", "HTTP 404: not found", "error"),
        ("tool", "status code: 503", "error"),
        ("tool", "500 Internal Server Error", "error"),
        ("tool", "500 mills stand here", "result"),
        ("tool", "ran tests\nTraceback (most recent call last):\n  x", "error"),
        ("tool", "错误：没有找到", "error"),
        ("assistant", "I will read the page of 1843.", "decision"),
        ("assistant", "所以答案是1843年。", "decision"),
        ("assistant", "1. Search.\n2. Read.\n", "plan"),
        ("assistant", "Next steps: read it.", "plan"),
        ("assistant", "The mill has three wheels.", "text"),
    ],
)
def test_kinds_by_rule(role: str, content: str, kind: str) -> None:
    assert kind_of(Message.model_validate({"role": role, "content": content})) == kind


def test_a_call_whose_result_fails_is_an_error_and_one_with_a_short_thought_a_result() -> None:
    wins = [
        call(1, content="I will search."),
        result(1, "The mill of Ann Smith was built in 1843 on the river."),
    ]
    (block,) = turn_blocks(wins, 100, words)
    assert block.kind == "result"
    (block,) = turn_blocks([*steps(2), call(9), result(9, "Error: no")], 100, words)
    assert block.kind == "error"
