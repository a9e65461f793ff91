"""Logs of every family: the same small run in each of them, whole and damaged at random."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_synthesis.importers.log_file import Log, read_log, scan_log

ASK, FOUND, SAY = "Which bridge is longest?", "the north one", "The north bridge."
INPUT = {"query": "bridge"}


def event(kind: str, number: int, content: object, **more: object) -> dict:
    message = {"role": kind, "content": content, "id": f"m{number}" if kind == "assistant" else None}
    parent = f"u{number - 1}" if number else None
    return {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": parent,
        "sessionId": "s",
        "message": message,
    } | more


def item(**payload: object) -> dict:
    return {"type": "response_item", "payload": payload}


USE = {"type": "tool_use", "id": "c1", "name": "search", "input": INPUT}
GIVE = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": FOUND}]}
REACT = f"Thought: look\nAction: search\nAction Input: {json.dumps(INPUT)}"
FORMATS: dict[str, list[dict]] = {
    "anthropic": [
        {
            "messages": [
                {"role": "user", "content": ASK},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "look"}, USE]},
                {"role": "user", "content": [GIVE]},
                {"role": "assistant", "content": [{"type": "text", "text": SAY}]},
            ]
        }
    ],
    "claude_code": [
        event("user", 0, ASK),
        event("assistant", 1, [USE]),
        event("user", 2, [GIVE]),
        event("assistant", 3, [{"type": "text", "text": SAY}]),
    ],
    "codex": [
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "compacted", "payload": {"message": ""}},
        item(type="message", role="user", content=[{"type": "input_text", "text": ASK}]),
        item(type="function_call", name="search", arguments=json.dumps(INPUT), call_id="c1"),
        item(type="function_call_output", call_id="c1", output=FOUND),
        item(type="message", role="assistant", content=[{"type": "output_text", "text": SAY}]),
    ],
    "openhands": [
        {
            "history": [
                {"source": "user", "action": "message", "args": {"content": ASK}},
                {"source": "agent", "action": "search", "args": INPUT | {"thought": "look"}},
                {"source": "agent", "observation": "search", "content": FOUND},
                {"source": "agent", "action": "message", "args": {"content": SAY}},
            ]
        }
    ],
    "langchain": [
        {
            "messages": [
                {"type": "human", "content": ASK},
                {"type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "search", "args": INPUT}]},
                {"type": "tool", "content": FOUND, "tool_call_id": "c1"},
                {"lc": 1, "id": ["langchain", "AIMessage"], "kwargs": {"content": SAY}},
            ]
        }
    ],
    "react": [
        {
            "messages": [
                {"role": "user", "content": ASK},
                {"role": "assistant", "content": REACT + f"\nObservation: {FOUND}\nThought: done\n{SAY}"},
            ]
        }
    ],
    "sharegpt": [
        {
            "conversations": [
                {"from": "human", "value": ASK},
                {"from": "function_call", "value": json.dumps({"name": "search", "arguments": INPUT})},
                {"from": "observation", "value": FOUND},
                {"from": "gpt", "value": SAY},
            ]
        }
    ],
    "mini_swe_agent": [
        {
            "trajectory_format": "mini-swe-agent-1",
            "messages": [
                {"role": "user", "content": ASK},
                {"role": "assistant", "content": "look\n```bash\ngrep bridge\n```"},
                {"role": "user", "content": FOUND},
                {"role": "assistant", "content": SAY},
            ],
        }
    ],
    "atif": [
        {
            "schema_version": "ATIF-v1.4",
            "steps": [
                {"source": "user", "message": ASK},
                {
                    "source": "agent",
                    "message": "",
                    "tool_calls": [{"tool_call_id": "c1", "function_name": "search", "arguments": INPUT}],
                    "observation": {"results": [{"source_call_id": "c1", "content": FOUND}]},
                },
                {"source": "agent", "message": SAY},
            ],
        }
    ],
    "inspect": [
        {
            "eval": {},
            "samples": [
                {
                    "id": 1,
                    "target": "north",
                    "messages": [
                        {"role": "user", "content": ASK},
                        {
                            "role": "assistant",
                            "content": [{"type": "reasoning", "reasoning": "look"}],
                            "tool_calls": [{"id": "c1", "function": "search", "arguments": INPUT}],
                        },
                        {"role": "tool", "content": FOUND, "tool_call_id": "c1", "function": "search"},
                        {"role": "assistant", "content": SAY},
                    ],
                }
            ],
        }
    ],
}


SESSIONS = {"claude_code", "codex", "inspect"}
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": json.dumps(INPUT)}}
CHAT = [
    {"role": "user", "content": ASK},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": FOUND},
    {"role": "assistant", "content": SAY},
]
TEXT_CALL = (
    f'<think>look</think><tool_call>{{"name": "search", "arguments": {json.dumps(INPUT)}}}</tool_call>'
)
FORMATS |= {
    "openai": [{"messages": CHAT}],
    "legacy function_call": [
        {
            "messages": [
                CHAT[0],
                {"role": "assistant", "content": None, "function_call": CALL["function"]},
                {"role": "function", "name": "search", "content": FOUND},
                CHAT[3],
            ]
        }
    ],
    "resum": [
        {
            "question": ASK,
            "messages": [
                CHAT[0],
                {"role": "assistant", "content": TEXT_CALL},
                {"role": "user", "content": f"<tool_response>\n{FOUND}\n</tool_response>"},
                {"role": "assistant", "content": f"<answer>{SAY}</answer>"},
            ],
        }
    ],
    "swe_agent": [{"environment": "main", "history": CHAT}],
    "tau_bench": [{"task_id": 1, "trial": 0, "reward": 1.0, "traj": CHAT}],
}


def write(folder: Path, rows: list) -> Path:
    path = folder / "log.txt"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def check_pairs(log: Log) -> None:
    """Every result answers an open call, and every call that its run went on from is answered."""
    for run in log.trajectories:
        open_calls: dict[str, list[int]] = {}
        for position, message in enumerate(run.messages):
            if message.role == "tool":
                assert message.tool_call_id and open_calls.get(message.tool_call_id)
                open_calls[message.tool_call_id].pop()
            for call in message.tool_calls:
                open_calls.setdefault(call.id, []).append(position)
        for position in (each for positions in open_calls.values() for each in positions):
            assert {message.role for message in run.messages[position + 1 :]} <= {"tool"}


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_run_in_every_format(tmp_path: Path, name: str) -> None:
    log = read_log(write(tmp_path, FORMATS[name]))
    run = log.trajectories[0]
    assert len(log.trajectories) == 1 and not log.rejected
    assert [message.role for message in run.messages] == ["user", "assistant", "tool", "assistant"]
    assert run.question == ASK and run.messages[2].content == FOUND and SAY in run.messages[3].content
    assert run.messages[1].tool_calls[0].id == run.messages[2].tool_call_id
    assert "bridge" in run.messages[1].tool_calls[0].function.arguments


def test_openseeker_has_a_turn_for_each_part_of_a_reply_and_a_verdict(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "Reason, then call."},
        {"role": "user", "content": ASK},
        {"role": "reasoning", "content": "<think>look</think>"},
        {"role": "tool_call", "content": TEXT_CALL.partition("</think>")[2]},
        {"role": "tool_output", "content": f"<tool_response>\n{FOUND}\n</tool_response>"},
        {"role": "reasoning", "content": "<think>that is it</think>"},
        {"role": "answer", "content": f"<answer>{SAY}</answer>"},
    ]
    row = {"messages": json.dumps(turns), "trajectory_correctness": "Incorrect"}
    log = read_log(write(tmp_path, [row]))
    (run,) = log.trajectories
    roles = ["system", "user", "assistant", "assistant", "tool", "assistant", "assistant"]
    assert [message.role for message in run.messages] == roles and not log.notes
    assert (run.verdict, run.prediction, run.question) == (False, SAY, ASK)
    check_pairs(log)


def test_recorded_compactions_become_cuts(tmp_path: Path) -> None:
    compacted = {"type": "compacted", "payload": {"message": "north is long"}}
    more = item(type="message", role="assistant", content=[{"type": "output_text", "text": "So: north."}])
    codex = read_log(write(tmp_path, [*FORMATS["codex"], compacted, more])).trajectories[0]
    summary = event("user", 4, "north is long", isCompactSummary=True)
    rows = [*FORMATS["claude_code"], summary, event("assistant", 5, "So: north.")]
    claude = read_log(write(tmp_path, rows)).trajectories[0]
    for run in (codex, claude):
        assert [(cut.position, cut.summary, cut.author) for cut in run.cuts] == [(4, "north is long", "log")]
        assert len(run.messages) == 5


def texts(log: Log) -> list[list[str]]:
    """The runs as what each turn says, the calls by their ids."""
    return [
        [message.content or " ".join(call.id for call in message.tool_calls) for message in run.messages]
        for run in log.trajectories
    ]


def test_sub_agents_and_branches_are_runs_of_their_own(tmp_path: Path) -> None:
    side = [event("user", 9, "Find it.", isSidechain=True, parentUuid=None)]
    side += [event("assistant", 10, SAY, isSidechain=True)]
    more = [event("user", 4, "And the oldest?"), event("assistant", 5, "East.")]
    again = [event("user", 12, "The newest?", parentUuid="u3"), event("assistant", 13, "South.")]
    log = read_log(write(tmp_path, [*FORMATS["claude_code"], *more, *again, *side]))
    assert texts(log) == [
        [ASK, "c1", FOUND, SAY, "And the oldest?", "East."],
        [ASK, "c1", FOUND, SAY, "The newest?", "South."],
        ["Find it.", SAY],
    ]
    assert log.notes["branch"] == 1 and not log.notes["branch_without_reply"]


def test_a_request_tried_again_is_a_branch_and_a_failed_one_is_none(tmp_path: Path) -> None:
    failed = event("assistant", 20, "API Error", parentUuid="u2")
    failed["message"]["model"] = "<synthetic>"
    withdrawn = event("user", 21, "wait", parentUuid="u2")
    retry = [event("assistant", 22, "The south bridge.", parentUuid="u2"), event("user", 23, "Sure?")]
    log = read_log(write(tmp_path, [*FORMATS["claude_code"], failed, withdrawn, *retry]))
    assert texts(log) == [[ASK, "c1", FOUND, SAY], [ASK, "c1", FOUND, "The south bridge.", "Sure?"]]
    assert (log.notes["branch"], log.notes["branch_without_reply"], log.notes["event_without_turn"]) == (
        1,
        1,
        1,
    )


def test_events_that_a_resumed_session_repeats_are_read_once(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, [*FORMATS["claude_code"][:3], *FORMATS["claude_code"]]))
    assert texts(log) == [[ASK, "c1", FOUND, SAY]] and log.notes["repeated_event"] == 3


def test_an_event_whose_parent_is_gone_is_counted(tmp_path: Path) -> None:
    rows = [*FORMATS["claude_code"][:3], event("assistant", 9, SAY, parentUuid="gone")]
    log = read_log(write(tmp_path, rows))
    assert texts(log) == [[ASK, "c1", FOUND, SAY]] and log.notes["lost_parent"] == 1


def use(name: str) -> list[dict]:
    return [USE | {"id": name}]


def give(name: str, text: str) -> list[dict]:
    return [GIVE | {"tool_use_id": name, "content": text}]


def test_calls_side_by_side_are_no_branch_and_a_second_result_is_one(tmp_path: Path) -> None:
    second = event("assistant", 2, use("c2"))
    second["message"]["id"] = "m1"  # one message on two lines, a result between them
    rows = [
        event("user", 0, ASK),
        event("assistant", 1, use("c1")),
        event("user", 3, give("c1", "north"), parentUuid="u1"),
        second,
        event("user", 4, give("c2", "south"), parentUuid="u2"),
        {"type": "progress", "uuid": "p", "parentUuid": "u4", "sessionId": "s"},
        event("assistant", 5, SAY, parentUuid="p"),
    ]
    assert texts(log := read_log(write(tmp_path, rows))) == [[ASK, "c1 c2", "north", "south", SAY]]
    assert not log.notes["branch"]
    again = [
        event("user", 6, give("c2", "east"), parentUuid="u2"),
        event("assistant", 7, "East.", parentUuid="u6"),
    ]
    assert texts(log := read_log(write(tmp_path, [*rows, *again]))) == [
        [ASK, "c1 c2", "north", "south", SAY],
        [ASK, "c1 c2", "north", "east", "East."],
    ]
    assert log.notes["branch"] == 1


def test_a_session_goes_on_across_its_compaction_and_a_broken_event_is_named(tmp_path: Path) -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b",
        "parentUuid": None,
        "sessionId": "s",
    }
    summary = event("user", 4, "north is long", isCompactSummary=True, parentUuid="b")
    broken = {"type": "user", "uuid": "u6", "parentUuid": "u5", "sessionId": "s", "mesage": {}}
    tail = [event("assistant", 5, "So: north."), broken, event("user", 7, "Thanks.")]
    for link in ({}, {"logicalParentUuid": "u3"}):
        log = read_log(write(tmp_path, [*FORMATS["claude_code"], boundary | link, summary, *tail]))
        assert texts(log) == [[ASK, "c1", FOUND, SAY, "So: north.", "Thanks."]]
        assert [cut.position for cut in log.trajectories[0].cuts] == [4]
        assert [row.detail for row in log.rejected] == ["a Claude Code event of type user without a message"]


def test_a_codex_session_that_compacts_unread_goes_on_as_a_run_of_its_own(tmp_path: Path) -> None:
    """The summary is encrypted; what the model saw from there on is the items that replaced its history."""

    def says(role: str, text: str) -> dict:
        return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}

    hidden = {"type": "compaction", "encrypted_content": "x"}
    replaced = {"message": "", "replacement_history": [says("user", ASK), hidden]}
    rows = [
        *FORMATS["codex"],
        {"type": "compacted", "payload": replaced},
        item(**says("assistant", "North.")),
    ]
    other = [{"type": "session_meta", "payload": {"id": "t"}}, item(**says("user", "Why?"))]
    log = read_log(write(tmp_path, [*rows, *other]))
    assert texts(log) == [[ASK, "c1", FOUND, SAY], [ASK, "North."], ["Why?"]]
    assert (log.notes["compaction_without_summary"], log.notes["item_compaction"]) == (2, 1)


def test_a_part_of_another_shape_is_told_as_that(tmp_path: Path) -> None:
    steps = [{"source": "user", "message": ASK}, {"source": "agent", "tool_calls": [7]}]
    log = scan_log(write(tmp_path, [{"schema_version": "ATIF-v1.4", "steps": steps}]))
    assert log.rejected[0].reason == "bad_turn" and log.rejected[0].detail.startswith(
        "a part of another shape"
    )


def damage(data: st.DataObject, value: object) -> object:
    """One place of the value deleted, emptied, or made something else."""
    if not isinstance(value, (dict, list)) or not value:
        return data.draw(st.sampled_from([None, 0, "", [], {}, "narrator", [[1]]]))
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = data.draw(st.sampled_from(keys))
    copy = value.copy()
    if data.draw(st.booleans()) and data.draw(st.booleans()):
        del copy[key]
    else:
        copy[key] = damage(data, value[key])
    return copy


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(set(FORMATS) - SESSIONS)), st.data())
def test_a_damaged_row_has_one_outcome(name: str, data: st.DataObject) -> None:
    rows = [damage(data, FORMATS[name][0]), *FORMATS[name]]
    with TemporaryDirectory() as folder:
        log = scan_log(write(Path(folder), rows))
    assert len(log.trajectories) + len(log.rejected) == 2 and len(log.trajectories) >= 1
    check_pairs(log)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(SESSIONS)), st.data())
def test_a_damaged_session_never_crashes_or_vanishes(name: str, data: st.DataObject) -> None:
    rows = damage(data, FORMATS[name])
    with TemporaryDirectory() as folder:
        log = scan_log(write(Path(folder), rows if isinstance(rows, list) else [rows]))
    assert log.trajectories or log.rejected
    check_pairs(log)


def damage_bytes(data: st.DataObject, content: bytes) -> bytes:
    """A piece cut out, repeated, or replaced by foreign bytes, somewhere."""
    start = data.draw(st.integers(0, len(content)))
    end = min(len(content), start + data.draw(st.integers(0, 60)))
    piece = data.draw(
        st.sampled_from([b"", content[start:end] * 2, b"\xff\xfe\x00", b"\n", b"\r", b'"', b"}{"])
    )
    return content[:start] + piece + content[end:]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_damaged_bytes_have_an_outcome_and_leave_the_other_rows_alone(name: str, data: st.DataObject) -> None:
    good = "".join(json.dumps(row) + "\n" for row in FORMATS[name]).encode()
    bad = damage_bytes(data, good)
    bad = bad if bad.endswith(b"\n") else bad + b"\n"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(bad + good)
        log = scan_log(path)
    check_pairs(log)
    if name not in SESSIONS:
        assert any(run.question == ASK and len(run.messages) == 4 for run in log.trajectories)
        num_lines = sum(bool(line.strip()) for line in (bad + good).split(b"\n"))
        assert len(log.trajectories) + len(log.rejected) == num_lines
    else:
        assert log.trajectories or log.rejected


def test_the_context_that_codex_adds_is_not_the_task(tmp_path: Path) -> None:
    context = [{"type": "input_text", "text": "<environment_context>\n/home</environment_context>"}]
    rows = [item(type="message", role="user", content=context), *FORMATS["codex"]]
    run = read_log(write(tmp_path, rows)).trajectories[0]
    assert run.question == ASK and run.head == 2


@pytest.mark.parametrize(
    ("name", "note", "number"),
    [("anthropic", "split_turn", 0), ("atif", "split_turn", 1), ("react", "split_turn", 2), ("resum", "", 0)],
)
def test_turns_that_were_split_are_counted(tmp_path: Path, name: str, note: str, number: int) -> None:
    assert read_log(write(tmp_path, FORMATS[name])).notes[note] == number


def test_a_turn_of_two_results_is_counted_as_split(tmp_path: Path) -> None:
    second = {"type": "tool_use", "id": "c2", "name": "search", "input": INPUT}
    gives = [GIVE, GIVE | {"tool_use_id": "c2"}, {"type": "text", "text": "Go on."}]
    turns = [{"role": "user", "content": ASK}, {"role": "assistant", "content": [USE, second]}]
    log = read_log(write(tmp_path, [{"messages": [*turns, {"role": "user", "content": gives}]}]))
    assert [message.role for message in log.trajectories[0].messages] == [
        *("user", "assistant", "tool", "tool", "user")
    ]
    assert log.notes["split_turn"] == 2
