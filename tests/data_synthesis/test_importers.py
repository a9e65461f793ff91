"""Reading logs: every dialect ends as the same messages, and what cannot be read is named."""

import json
from collections import Counter
from pathlib import Path

import pytest

from condensery.message import Message, closed_positions
from condensery.trajectory import Trajectory
from data_synthesis.importers.log_file import Log, read_log

SYSTEM = {"role": "system", "content": "You are an agent."}
ASK = {"role": "user", "content": "Which bridge is longest?"}
SAY = {"role": "assistant", "content": "The north bridge."}


def call(arguments: object, call_id: str = "c1", content: object = None) -> dict:
    function = {"name": "search", "arguments": arguments}
    return {"role": "assistant", "content": content, "tool_calls": [{"id": call_id, "function": function}]}


def result(text: str = "found", call_id: str | int | None = "c1") -> dict:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def read(tmp_path: Path, *rows: object, name: str = "log.jsonl") -> Log:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_log(path)


def messages_of(tmp_path: Path, *turns: dict) -> list[Message]:
    return read(tmp_path, {"messages": [SYSTEM, ASK, *turns]}).trajectories[0].messages[2:]


def only(log: Log) -> Trajectory:
    assert len(log.trajectories) == 1 and not log.rejected
    return log.trajectories[0]


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}]])
def test_a_turn_that_only_calls_has_empty_text(tmp_path: Path, content: object) -> None:
    turns = messages_of(tmp_path, call("{}", content=content), result(), SAY)
    assert [turn.content for turn in turns] == ["", "found", "The north bridge."]
    assert turns[1].tool_call_id == turns[0].tool_calls[0].id


def test_call_ids_may_be_numbers(tmp_path: Path) -> None:
    turn = call("{}")
    turn["tool_calls"][0]["id"] = 0
    turns = messages_of(tmp_path, turn, result(call_id=0), SAY)
    assert turns[0].tool_calls[0].id == turns[1].tool_call_id == "0" and turns[1].role == "tool"


def test_missing_content_is_empty_text(tmp_path: Path) -> None:
    turn = call("{}")
    del turn["content"]
    assert messages_of(tmp_path, turn, result())[0].content == ""


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ('{"city":  "Paris"}', '{"city":  "Paris"}'),
        ({"city": "Paris"}, '{"city": "Paris"}'),
        (None, "{}"),
        ("", "{}"),
        ('{"city": "Par', '{"city": "Par'),
    ],
)
def test_arguments_are_the_text_the_model_wrote(tmp_path: Path, arguments: object, kept: str) -> None:
    assert messages_of(tmp_path, call(arguments), result())[0].tool_calls[0].function.arguments == kept


def test_the_older_function_call_is_paired_with_its_result(tmp_path: Path) -> None:
    turns = messages_of(
        tmp_path,
        {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": "{}"}},
        {"role": "function", "name": "search", "content": "found"},
        SAY,
    )
    assert turns[1].role == "tool" and turns[1].tool_call_id == turns[0].tool_calls[0].id != ""


def test_parts_are_joined_and_images_are_counted(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "image_url", "image_url": {}}]
    thoughts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "c"}]
    log = read(
        tmp_path,
        {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": thoughts}]},
    )
    first, second = only(log).messages
    assert first.content == "a\nb\n[image]" and log.notes["image"] == 1
    assert (second.reasoning_content, second.content) == ("hm", "c")


def test_foreign_role_names_are_mapped_and_repeats_are_kept(tmp_path: Path) -> None:
    turns = [("human", "one"), ("human", "two"), ("gpt", "three")]
    log = read(tmp_path, {"conversations": [{"from": role, "value": text} for role, text in turns]})
    assert [(turn.role, turn.content) for turn in only(log).messages] == [
        ("user", "one"),
        ("user", "two"),
        ("assistant", "three"),
    ]


@pytest.mark.parametrize(
    ("turn", "complaint"),
    [
        ({"role": "narrator", "content": "x"}, "turn 3: unknown role 'narrator'"),
        (
            {"role": "user", "content": [{"type": "hologram"}]},
            'turn 3: unknown content part {"type": "hologram"}',
        ),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "turn 3: a tool call without a name"),
        ("text", 'turn 3: expected an object, got "text"'),
    ],
)
def test_what_has_no_meaning_is_rejected_by_row_and_value(
    tmp_path: Path, turn: object, complaint: str
) -> None:
    log = read(tmp_path, {"messages": [SYSTEM, ASK, SAY]}, {"messages": [SYSTEM, ASK, turn]})
    assert len(log.trajectories) == 1
    assert [(row.line, row.reason) for row in log.rejected] == [(2, "bad_turn")]
    assert complaint in log.rejected[0].detail


def think(text: str, after: str) -> dict:
    return {"role": "assistant", "content": f"<think>{text}</think>\n{after}"}


CALL_TEXT = '<tool_call>\n{"name": "search", "arguments": {"query": ["a"]}}\n</tool_call>'


def test_text_calls_and_responses_become_calls_and_results(tmp_path: Path) -> None:
    turns = messages_of(
        tmp_path,
        think("hm", CALL_TEXT),
        {"role": "user", "content": "<tool_response>\na page with </tool_response> in it\n</tool_response>"},
        think("so", "<answer>north</answer>"),
    )
    assert [turn.role for turn in turns] == ["assistant", "tool", "assistant"]
    assert turns[0].reasoning_content == "hm" and turns[0].content == ""
    assert turns[0].tool_calls[0].function.arguments == '{"query": ["a"]}'
    assert turns[1].content == "a page with </tool_response> in it"
    assert turns[1].tool_call_id == turns[0].tool_calls[0].id


def test_a_call_quoted_in_a_thought_is_none(tmp_path: Path) -> None:
    quoted = CALL_TEXT.replace('"a"', '"quoted"')
    turns = messages_of(
        tmp_path,
        think(f"I could {quoted} or {quoted}</think> <think>no", CALL_TEXT),
        {"role": "user", "content": "<tool_response>r</tool_response>"},
    )
    assert [c.function.arguments for c in turns[0].tool_calls] == ['{"query": ["a"]}']
    assert "quoted" in (turns[0].reasoning_content or "")


def test_an_unparsable_call_stays_as_text_and_is_counted(tmp_path: Path) -> None:
    row = {
        "messages": [
            ASK,
            think("hm", '<tool_call>{"name": "search", "arguments": </tool_call>'),
            {"role": "user", "content": "<tool_response>error: not JSON</tool_response>"},
            SAY,
        ]
    }
    log = read(tmp_path, row)
    turns = only(log).messages
    assert "<tool_call>" in turns[1].content and not turns[1].tool_calls and len(turns) == 4
    assert turns[2].role == "user" and "not JSON" in turns[2].content
    assert log.notes == {"unparsable_call": 1, "result_without_call": 1}


def test_function_markup_with_and_without_a_wrapper(tmp_path: Path) -> None:
    parameters = "<parameter=path>/a.py</parameter>\n<parameter=lines>\n1\n2\n</parameter>"
    markup = f"<function=view>\n{parameters}\n</function>"
    for text in (markup, f"<tool_call>\n{markup}\n</tool_call>"):
        turns = messages_of(
            tmp_path,
            {"role": "assistant", "content": f"Let me look.\n\n{text}"},
            {"role": "user", "content": "OBSERVATION:\nok"},
            SAY,
        )
        assert turns[0].content == "Let me look." and turns[1].role == "tool"
        assert json.loads(turns[0].tool_calls[0].function.arguments) == {"path": "/a.py", "lines": "1\n2"}


def test_two_text_calls_get_their_results_from_one_turn(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        {
            "messages": [
                ASK,
                think("", CALL_TEXT + CALL_TEXT),
                {
                    "role": "user",
                    "content": "<tool_response>1</tool_response><tool_response>2</tool_response>",
                },
                SAY,
            ]
        },
    )
    turns = only(log).messages
    assert [turn.content for turn in turns[2:4]] == ["1", "2"] and log.notes == {"split_results": 1}
    assert closed_positions(turns)[-1] == len(turns)


def test_a_missing_result_does_not_shift_the_results_after_it(tmp_path: Path) -> None:
    def answer(text: str) -> dict:
        return {"role": "user", "content": f"<tool_response>{text}</tool_response>"}

    turns = [think("", CALL_TEXT + CALL_TEXT), answer("first"), think("", CALL_TEXT), answer("second"), SAY]
    log = read(tmp_path, {"messages": [ASK, *turns]})
    messages = only(log).messages
    assert [turn.role for turn in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert messages[4].tool_call_id == messages[3].tool_calls[0].id
    assert +log.notes == Counter(call_without_result=1) and closed_positions(messages)[-1] == 6


@pytest.mark.parametrize(
    "text", ["<tool_call>" + "[" * 30_000, '<tool_call>{"name": "f", "arguments": "\\ud83d"}']
)
def test_what_a_model_wrote_inside_a_call_never_ends_the_import(tmp_path: Path, text: str) -> None:
    message = only(read(tmp_path, {"messages": [ASK, think("", text), SAY]})).messages[1]
    assert message.model_dump_json().encode()


@pytest.mark.parametrize(
    "piece", ["<function=a>", "</tools>\n", "<pr_description>", "<parameter=a>", "<tool_response>"]
)
def test_tags_that_never_close_are_read_in_one_pass(tmp_path: Path, piece: str) -> None:
    """A search to the end from every opening tag would hang here for minutes."""
    text = piece * 40_000
    assert only(read(tmp_path, {"messages": [{"role": "user", "content": text}, think("", text), SAY]}))


def test_an_abandoned_call_becomes_text_and_the_last_one_stays(tmp_path: Path) -> None:
    row = {"messages": [ASK, call("{}"), {"role": "user", "content": "stop"}, SAY, call("{}", "c2")]}
    log = read(tmp_path, row)
    turns = only(log).messages
    assert turns[1].content == "search({})" and not turns[1].tool_calls
    assert turns[4].tool_calls and log.notes == {"call_without_result": 1}
    assert closed_positions(turns) == [0, 1, 2, 3, 4]


def test_call_ids_may_be_used_again(tmp_path: Path) -> None:
    turns = messages_of(tmp_path, call("{}"), result("1"), call("{}"), result("2"), SAY)
    assert closed_positions(turns) == [0, 2, 4, 5]


def test_the_question_is_what_follows_the_tool_description(tmp_path: Path) -> None:
    tools = "Use tools.\n<tools>\n{}\n</tools>\nExample:\n<answer> here </answer>"
    prompt = f"{tools}\n\nUser: Who? \nQuestion: really?"
    log = read(tmp_path, {"messages": [SYSTEM, {"role": "user", "content": prompt}, SAY]})
    assert only(log).question == "Who? \nQuestion: really?" and only(log).head == 2


def test_a_logged_compaction_is_a_cut(tmp_path: Path) -> None:
    reset = "Question: Who?\nBelow is a summary of the previous conversation. Read it.\nSummary: It is Ann.\n"
    row = {
        "question": "Who?",
        "answer": "Ann",
        "rollout_id": 1,
        "messages": [
            SYSTEM,
            {"role": "user", "content": "Who?"},
            think("a", CALL_TEXT),
            {"role": "user", "content": "<tool_response>Ann</tool_response>"},
            {"role": "user", "content": reset},
            think("b", "<answer>Ann</answer>"),
        ],
        "prediction": "Ann",
        "termination": "answer",
    }
    run = only(read(tmp_path, row))
    assert [(cut.position, cut.summary, cut.author) for cut in run.cuts] == [(4, "It is Ann.", "log")]
    assert (run.question, run.answer, run.prediction, run.termination) == ("Who?", "Ann", "Ann", "answer")
    assert len(run.messages) == 5


def test_old_swe_agent_actions_become_calls(tmp_path: Path) -> None:
    history = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a demonstration", "is_demo": True},
        {"role": "user", "content": "ISSUE:\nIt breaks.\n\nINSTRUCTIONS:\nFix it."},
        {"role": "assistant", "content": "Look.\n```\nls\n```", "thought": "Look.\n", "action": "ls\n"},
        {"role": "user", "content": "a.py"},
    ]
    run = only(read(tmp_path, {"history": history, "environment": "org__repo-1"}, name="x.traj"))
    assert (run.question, run.question_id, run.head) == ("It breaks.", "org__repo-1", 3)
    assert run.messages[3].content == "Look." and run.messages[4].role == "tool"
    assert json.loads(run.messages[3].tool_calls[0].function.arguments) == {"command": "ls\n"}


def test_tau_bench_trials_of_one_task_share_a_question(tmp_path: Path) -> None:
    info = {"task": {"instruction": "You are Mia."}}
    rows = [
        {"task_id": 7, "trial": trial, "reward": float(trial), "info": info, "traj": [SYSTEM, ASK, SAY]}
        for trial in range(2)
    ]
    (tmp_path / "r.json").write_text(json.dumps(rows))
    runs = read_log(tmp_path / "r.json").trajectories
    assert len({run.question_id for run in runs}) == 1
    assert [(run.rollout, run.verdict) for run in runs] == [(0, False), (1, True)]


def test_the_envelope_is_read_whatever_the_extension_says(tmp_path: Path) -> None:
    row = {"messages": [SYSTEM, ASK, SAY]}
    as_text = {"messages": json.dumps(row["messages"])}
    bodies = {
        "lines.json": f"{json.dumps(row)}\n{json.dumps(as_text)}\n",
        "one.jsonl": json.dumps(row, indent=2),
        "list.jsonl": json.dumps([row, row]),
        "turns.json": json.dumps(row["messages"]),
        "bom_crlf.jsonl": f"\ufeff{json.dumps(row)}\r\n\r\n{json.dumps(row['messages'])}\r\n",
    }
    counts = {}
    for name, body in bodies.items():
        (tmp_path / name).write_bytes(body.encode())
        log = read_log(tmp_path / name)
        assert not log.rejected and {len(run.messages) for run in log.trajectories} == {3}
        counts[name] = len(log.trajectories)
    (tmp_path / "turn_a_line.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in row["messages"]))
    assert len(only(read_log(tmp_path / "turn_a_line.jsonl")).messages) == 3
    assert counts == {"lines.json": 2, "one.jsonl": 1, "list.jsonl": 2, "turns.json": 1, "bom_crlf.jsonl": 2}


def test_half_a_character_is_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a\\ud83d b \\ud83d\\ude00"}, {"role": "assistant"}]}'
    )
    log = read_log(tmp_path / "log.jsonl")
    assert only(log).messages[0].content == "a\ufffd b \U0001f600" and log.notes == {"broken_character": 1}


def test_bad_lines_are_named_and_good_ones_kept(tmp_path: Path) -> None:
    good = json.dumps({"messages": [SYSTEM, ASK, SAY]}).encode()
    huge = json.dumps({"messages": [ASK, {"role": "assistant", "content": "x" * 3_000_000}]}).encode()
    lines = [good, b'{"messages": [\xff\xfe]}', b"42", huge, good[:-20]]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines))
    log = read_log(tmp_path / "log.jsonl")
    assert len(log.trajectories) == 2 and len(log.trajectories[1].messages[1].content) == 3_000_000
    assert [(row.line, row.reason) for row in log.rejected] == [
        (2, "unreadable"),
        (3, "unknown_shape"),
        (5, "unreadable"),
    ]
    assert "not UTF-8" in log.rejected[0].detail and "torn last line" in log.rejected[2].detail


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("", "the file is empty"),
        ("  \n\n", "the file is empty"),
        ('{"question": "Who?", "answer": "Ann"}\n', "a file of 1 questions, not of agent runs"),
        ('{"input": "x"}\n{"input": "y"}\n', "no agent run in 2 rows; line 1: no list of turns (keys input)"),
        ('{"history": [{"action": "run"}]}', "no user turn"),
        ('{"history": [{"event": "run"}]}', "its history holds events without roles"),
        ("[]", "an empty list"),
        ("not json", "no agent run in 1 rows; line 1: not JSON"),
        ('{\n "messages": [\n', "no agent run in 1 rows; line 1: a JSON document that does not parse"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "no user turn"),
    ],
)
def test_a_file_without_a_run_says_what_it_holds(tmp_path: Path, body: str, complaint: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(body)
    with pytest.raises(ValueError) as error:
        read_log(path)
    message = str(error.value)
    assert complaint in message and str(path) in message and "\n" not in message


def test_equal_content_has_an_equal_id(tmp_path: Path) -> None:
    row = {"messages": [SYSTEM, ASK, SAY]}
    first, second = read(tmp_path, row, row).trajectories
    other = read(tmp_path, {"messages": [SYSTEM, ASK, SAY, ASK]}).trajectories[0]
    assert first.id == second.id != other.id and first.question_id == other.question_id
    assert first.source.endswith(":1") and second.source.endswith(":2")
