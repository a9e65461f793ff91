"""Real agent logs: message counts in = out, no orphan in any compaction, every row within its budget.

The folder is named by CONDENSERY_DATA (default `../shared/data` beside the repository); it is not part of it.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from condensery.compaction import Compaction, compactions_of
from condensery.files.jsonl import read_jsonl
from condensery.trajectory import Trajectory
from data_synthesis.fitting import request_tokens
from data_synthesis.import_logs import main
from data_synthesis.importers.log_file import read_log

REPOSITORY = Path(__file__).parents[2]
DATA = Path(os.environ.get("CONDENSERY_DATA", REPOSITORY.parent / "shared/data"))
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no agent logs in {DATA} (set CONDENSERY_DATA)"),
]
WEB, TAU = DATA / "webdancer/sample_traj.jsonl", DATA / "tau_bench/gpt-4o-airline.json"
SWE = [*sorted((DATA / "swe_agent").glob("*.traj")), *sorted((DATA / "swe_smith").glob("*.traj"))]
SMITH = DATA / "swe_smith/ft_xml_example.jsonl"


def logged_turns(path: Path) -> list[list[dict]]:
    """The turns of each run as they stand in the file, read without any code of ours."""
    text = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    rows = rows if isinstance(rows, list) else [rows]
    return [row.get("messages") or row.get("history") or row["traj"] for row in rows]


@pytest.mark.parametrize("path", [WEB, TAU, SMITH, *SWE], ids=lambda path: path.name)
def test_no_turn_is_lost_or_invented(path: Path) -> None:
    log = read_log(path)
    turns = logged_turns(path)
    assert not log.rejected and not log.notes
    assert [len(run.messages) for run in log.trajectories] == [len(each) for each in turns]
    for run in log.trajectories:
        asked = Counter(call.id for message in run.messages for call in message.tool_calls)
        answered = Counter(message.tool_call_id for message in run.messages if message.role == "tool")
        assert not answered - asked and (asked - answered).total() <= 1
        assert "None" not in [message.content for message in run.messages]
        assert run.question and run.head == 2


def test_what_the_web_log_holds() -> None:
    runs = read_log(WEB).trajectories
    assert len(runs) == 200 and all(run.prediction and run.termination == "answer" for run in runs)
    assert not any("<tools>" in run.question or run.question.startswith("User") for run in runs)
    assert all(
        message.reasoning_content for run in runs for message in run.messages if message.role == "assistant"
    )
    assert not any("tool_call" in message.content for run in runs for message in run.messages[2:])


def test_what_the_service_dialogues_hold() -> None:
    runs = read_log(TAU).trajectories
    turns = [turn for each in logged_turns(TAU) for turn in each]
    assert sum(turn["content"] is None for turn in turns) == 1074
    assert len(runs) == 200 and len({run.question_id for run in runs}) == 50
    assert sum(run.messages[-1].role == "tool" for run in runs) == 51
    reused = sum(
        count - 1
        for run in runs
        for count in Counter(call.id for message in run.messages for call in message.tool_calls).values()
    )
    assert reused == 73


def test_one_bug_report_under_several_styles_is_one_task() -> None:
    runs = [read_log(path).trajectories[0] for path in SWE if "marshmallow" in path.name]
    assert len({run.question for run in runs}) == 1 and len(runs) == 3


@pytest.mark.parametrize(
    ("name", "limit"),
    [("webdancer/sample_traj.jsonl", 40), ("tau_bench/gpt-4o-airline.json", 40), ("swe", 99)],
)
def test_no_orphan_in_any_compaction_and_every_row_fits(tmp_path: Path, name: str, limit: int) -> None:
    paths = [str(DATA / name)] if name != "swe" else [str(DATA / "swe_agent"), str(DATA / "swe_smith")]
    window = ["--window_tokens", "4096", "--max_row_tokens", "2048", "--limit", str(limit)]
    assert main([*paths, "--output_dir", str(tmp_path / "out"), *window]) == 0
    assert read_jsonl(tmp_path / "out/rejected.jsonl") == []
    runs = [Trajectory.model_validate(row) for row in read_jsonl(tmp_path / "out/trajectories.jsonl")]
    compactions = [compaction for run in runs for compaction in compactions_of(run)]
    assert len(runs) == min(limit, 8 if name == "swe" else limit) and len(compactions) >= 20
    for compaction in compactions:
        assert orphans(compaction) == [] and request_tokens(compaction, "compact_v1", None) <= 2048 - 256


@pytest.mark.parametrize(
    "name",
    [
        "openhands/multi_swe_bench.output.jsonl",
        "openhands/resolver.output.jsonl",
        "claude_code/representative_messages.jsonl",
        "claude_code/edge_cases.jsonl",
    ],
)
def test_every_event_is_a_turn_or_counted(name: str) -> None:
    rows = read_jsonl(DATA / name) if "edge" not in name else (DATA / name).read_text().splitlines()
    events = sum(len(row["history"]) for row in rows) if "openhands" in name else len(rows)
    log = read_log(DATA / name)
    turns = sum(len(run.messages) for run in log.trajectories)
    assert turns + log.notes["event_without_turn"] + len(log.rejected) == events
    for run in log.trajectories:
        asked = Counter(call.id for message in run.messages for call in message.tool_calls)
        answered = Counter(message.tool_call_id for message in run.messages if message.role == "tool")
        assert not answered - asked and (asked - answered).total() <= 1


def orphans(compaction: Compaction) -> list[str]:
    """Ids of calls without their result, and of results without their call, within one history."""
    open_ids: list[str] = []
    for message in compaction.expired:
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                return [f"result {message.tool_call_id}"]
            open_ids.remove(message.tool_call_id)
        open_ids += [call.id for call in message.tool_calls]
    return open_ids


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("webdancer/sailorfog-QA.jsonl", "a file of 20 questions"),
        ("webdancer/sample_qa.jsonl", "a file of 200 questions"),
        ("letta_evals/core_memory_read.jsonl", "a file of 1100 questions"),
        ("letta_evals/core_memory_update.jsonl", "questions, not of agent runs"),
        ("longmemeval/longmemeval.min.json", "a file of 3 questions"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, found: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(DATA / name), "--output_dir", str(tmp_path / "out")])
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and found in message and message.count("\n") == 1
