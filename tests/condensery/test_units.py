"""Research units: where one sub-question ends and the next begins."""

import json

import pytest

from condensery.message import FunctionCall, Message, ToolCall
from condensery.units import unit_at, unit_starts


def step(name: str, query: object) -> list[Message]:
    call = ToolCall(id="c", function=FunctionCall(name=name, arguments=json.dumps({"query": query})))
    return [
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", tool_call_id="c", content="found"),
    ]


def run(*steps: tuple[str, object], answer: bool = True) -> list[Message]:
    turns = [Message(role="user", content="?")]
    for name, query in steps:
        turns += step(name, query)
    return turns + ([Message(role="assistant", content="1843")] if answer else [])


CASES = [
    ("other words", [("search", ["mill Harrow"]), ("search", ["mayor Ashford"])], [1, 3, 5]),
    (
        "refined",
        [("search", ["Harrow mill year built"]), ("search", ["Harrow mill year opened"])],
        [1, 5],
    ),
    ("repeated", [("search", "Harrow mill"), ("visit", ""), ("search", "Harrow mill")], [1, 7]),
    (
        "after reading",
        [("search", ["Harrow mill year built"]), ("visit", ""), ("search", ["Harrow mill year opened"])],
        [1, 5, 7],
    ),
    ("Chinese", [("search", "河港磨坊"), ("search", "河港磨坊年份"), ("search", "市长姓名")], [1, 5, 7]),
    ("no search", [("bash", "ls"), ("bash", "cat x")], []),
    ("not JSON", [("search", None), ("search", 7)], [1, 3, 5]),
]


@pytest.mark.parametrize(("name", "steps", "starts"), CASES)
def test_units_start_where_a_search_turns_to_something_else(
    name: str, steps: list[tuple[str, object]], starts: list[int]
) -> None:
    assert unit_starts(run(*steps)) == starts


def test_what_comes_next_tells_whether_a_unit_had_closed() -> None:
    turns = run(("search", ["Harrow mill"]), ("visit", ""), ("search", ["mayor Ashford"]))
    at = [unit_at(turns, position) for position in (1, 3, 5, 7, 8)]
    assert at == [None, "open", "closed", "closed", None]
    unanswered = run(("search", ["Harrow mill"]), answer=False)
    assert unit_at(unanswered, 3) is None
    assert unit_at(run(("bash", "ls"), ("bash", "pwd")), 3) is None
