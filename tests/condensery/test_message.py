"""Messages in the chat shape, and where a conversation may be cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from condensery.message import FunctionCall, Message, ToolCall, closed_positions


def calling(*ids: str) -> Message:
    calls = [ToolCall(id=call_id, function=FunctionCall(name="f")) for call_id in ids]
    return Message(role="assistant", tool_calls=calls)


def result(call_id: str) -> Message:
    return Message(role="tool", content="r", tool_call_id=call_id)


USER, ANSWER = Message(role="user", content="q"), Message(role="assistant", content="a")


def test_null_content_is_empty_text_and_never_the_word() -> None:
    message = Message.model_validate({"role": "assistant", "content": None})
    assert message.content == "" and message.to_chat() == {"role": "assistant", "content": ""}


def test_arguments_stay_the_text_that_the_model_wrote() -> None:
    for arguments in ['{"b": 1,  "a": null}', "{'not': json", '{"é": "\\u00e9"}']:
        call = ToolCall(id="1", function=FunctionCall(name="f", arguments=arguments))
        row = json.loads(json.dumps(Message(role="assistant", tool_calls=[call]).to_chat()))
        assert Message.model_validate(row).tool_calls[0].function.arguments == arguments
        assert row["tool_calls"][0]["function"] == {"name": "f", "arguments": arguments}


def test_half_a_character_in_a_call_id_is_no_reason_to_stop() -> None:
    call = ToolCall(id="call \ud83d", function=FunctionCall(name="f"))
    answer = Message(role="tool", tool_call_id="call \ud83d")
    assert call.id == answer.tool_call_id
    json.dumps([call.model_dump(), answer.model_dump()], ensure_ascii=False).encode()


def test_chat_shape_has_no_empty_keys_and_reads_back() -> None:
    message = calling("c1")
    chat = message.to_chat()
    assert set(chat) == {"role", "content", "tool_calls"}
    assert chat["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ], "endpoints refuse a call without type or arguments"
    assert Message.model_validate(chat) == message


def test_foreign_keys_and_roles_are_refused() -> None:
    for row in ({"role": "human", "content": "x"}, {"role": "user", "content": "x", "name": "Ann"}):
        with pytest.raises(ValidationError):
            Message.model_validate(row)


@pytest.mark.parametrize(
    ("messages", "positions"),
    [
        ([], [0]),
        ([USER, ANSWER], [0, 1, 2]),
        ([USER, calling("1"), result("1"), ANSWER], [0, 1, 3, 4]),
        ([calling("1", "2"), result("2"), result("1")], [0, 3]),
        ([calling("1", "1"), result("1"), result("1")], [0, 3]),  # one id for both calls
        ([calling("1"), result("1"), calling("1"), result("1")], [0, 2, 4]),  # an id used again later
        ([USER, calling("1"), USER, result("1")], [0, 1, 4]),
        ([USER, calling("1"), USER, ANSWER], [0, 1]),  # never answered: open to the end
    ],
)
def test_closed_positions(messages: list[Message], positions: list[int]) -> None:
    assert closed_positions(messages) == positions


@given(
    st.lists(
        st.sampled_from([USER, ANSWER, calling("a"), calling("a", "b"), result("a"), result("b")]),
        max_size=12,
    )
)
def test_no_part_of_a_cut_conversation_holds_an_orphan(messages: list[Message]) -> None:
    for position in closed_positions(messages):
        for part in (messages[:position], messages[position:]):
            assert count_orphans(part) <= count_orphans(messages)
        assert not open_calls(messages[:position])


def open_calls(messages: list[Message]) -> list[str | None]:
    still_open: list[str | None] = []
    for message in messages:
        if message.tool_call_id in still_open:
            still_open.remove(message.tool_call_id)
        still_open += [call.id for call in message.tool_calls]
    return still_open


def count_orphans(messages: list[Message]) -> int:
    """Results that no call in this list asked for."""
    return sum(
        message.role == "tool" and message.tool_call_id not in open_calls(messages[:position])
        for position, message in enumerate(messages)
    )
