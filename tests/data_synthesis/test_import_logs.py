"""`condensery import`: logs in, trajectories with summaries out, every other row named, resumable."""

import json
import socket
from pathlib import Path

import pytest

from condensery.compaction import Compaction, compactions_of
from condensery.files.jsonl import JsonlAppender, read_jsonl, write_jsonl
from condensery.trajectory import Trajectory
from data_synthesis.import_logs import main, read_logs
from tests.scripted_endpoint import ScriptedEndpoint, say, status

WINDOW = ["--window_tokens", "700", "--max_row_tokens", "600", "--max_summary_tokens", "100"]


def run_row(number: int, num_rounds: int = 8) -> dict:
    """A run that asks for a bridge's length, round by round, with calls and results."""
    turns: list[dict] = [{"role": "user", "content": f"How long is bridge {number}?"}]
    for step in range(num_rounds):
        function = {"name": "search", "arguments": json.dumps({"query": f"bridge {number} length"})}
        turns.append(
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
        )
        found = f"Bridge {number} was measured in {1900 + step}. It is {number * 7 + step} metres long. " * 4
        turns.append({"role": "tool", "tool_call_id": "c", "content": found})
    return {"messages": [*turns, {"role": "assistant", "content": f"It is {number * 7} metres long."}]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(run_row(number)) + "\n" for number in range(6)))
    return path


def test_runs_become_trajectories_with_compactions(tmp_path: Path, log: Path) -> None:
    assert main([str(log), "--output_dir", str(tmp_path / "out"), *WINDOW]) == 0
    runs = [Trajectory.model_validate(row) for row in read_jsonl(tmp_path / "out/trajectories.jsonl")]
    assert len(runs) == 6 and all(len(run.messages) == 18 and run.cuts for run in runs)
    assert {cut.author for run in runs for cut in run.cuts} == {"extractive"}
    assert all("metres long" in (cut.summary or "") for run in runs for cut in run.cuts)
    written = [Compaction.model_validate(row) for row in read_jsonl(tmp_path / "out/compactions.jsonl")]
    assert written == [compaction for run in runs for compaction in compactions_of(run)]
    description = json.loads((tmp_path / "out/run.json").read_text())
    assert description["counts"]["trajectories"] == 6 and description["config"]["window_tokens"] == 700
    assert read_jsonl(tmp_path / "out/rejected.jsonl") == []


def test_rejected_rows_are_named_and_decide_the_exit_status(tmp_path: Path, log: Path) -> None:
    bad = {"messages": [{"role": "user", "content": "x"}, {"role": "narrator", "content": "y"}]}
    log.write_text(log.read_text() + json.dumps(bad) + "\n" + '{"torn": ')
    arguments = [str(log), *WINDOW]
    assert main([*arguments, "--output_dir", str(tmp_path / "a")]) == 1
    assert main([*arguments, "--output_dir", str(tmp_path / "b"), "--on_error", "skip"]) == 0
    rejected = read_jsonl(tmp_path / "a/rejected.jsonl")
    assert [(row["file"], row["line"], row["reason"]) for row in rejected] == [
        (str(log), 7, "bad_turn"),
        (str(log), 8, "unreadable"),
    ]


def test_what_lies_beside_the_logs_of_a_folder_is_rejected_by_name(tmp_path: Path, log: Path) -> None:
    (tmp_path / "logs").mkdir()
    log.rename(tmp_path / "logs/a.jsonl")
    (tmp_path / "logs/questions.jsonl").write_text('{"question": "Who?"}\n{"question": "What?"}\n')
    (tmp_path / "logs/empty.json").touch()
    (tmp_path / "logs/notes.txt").write_text("not a log")
    assert main([str(tmp_path / "logs"), "--output_dir", str(tmp_path / "out"), *WINDOW]) == 1
    rejected = read_jsonl(tmp_path / "out/rejected.jsonl")
    assert [(Path(row["file"]).name, row["line"], row["reason"]) for row in rejected] == [
        ("empty.json", 0, "unreadable"),
        ("questions.jsonl", 1, "question"),
        ("questions.jsonl", 2, "question"),
    ]
    assert len(read_jsonl(tmp_path / "out/trajectories.jsonl")) == 6


def test_a_resumed_import_equals_an_uninterrupted_one(tmp_path: Path, log: Path) -> None:
    arguments = [str(log), *WINDOW, "--output_dir"]
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    assert main([*arguments, str(tmp_path / "cut")]) == 0
    path = tmp_path / "cut/trajectories.jsonl"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])  # killed while it wrote a row
    (tmp_path / "cut/compactions.jsonl").unlink()
    assert main([*arguments, str(tmp_path / "cut"), "--resume"]) == 0
    for name in ("trajectories.jsonl", "compactions.jsonl", "rejected.jsonl"):
        rows = [read_jsonl(tmp_path / run / name) for run in ("whole", "cut")]
        assert sorted(map(str, rows[0])) == sorted(map(str, rows[1]))


def test_equal_runs_are_kept_under_numbered_ids(tmp_path: Path, log: Path) -> None:
    log.write_text(json.dumps(run_row(1)) + "\n" + json.dumps(run_row(1)) + "\n")
    assert main([str(log), "--output_dir", str(tmp_path / "out"), *WINDOW]) == 0
    first, second = read_jsonl(tmp_path / "out/trajectories.jsonl")
    assert second["id"] == first["id"] + "-2" and second["question_id"] == first["question_id"]


def test_a_teacher_endpoint_is_asked_and_every_call_is_on_record(tmp_path: Path, log: Path) -> None:
    with ScriptedEndpoint(lambda body: say("<think>hm</think><summary>It is long.</summary>")) as server:
        teacher = ["--teacher", server.url, "--teacher_model", "scripted"]
        assert main([str(log), "--output_dir", str(tmp_path / "out"), *WINDOW, *teacher]) == 0
        assert server.requests[0]["max_tokens"] == 4096
    runs = [Trajectory.model_validate(row) for row in read_jsonl(tmp_path / "out/trajectories.jsonl")]
    cuts = [cut for run in runs for cut in run.cuts]
    assert {(cut.summary, cut.author, cut.prompt_tokens) for cut in cuts} == {("It is long.", "scripted", 7)}
    calls = read_jsonl(tmp_path / "out/calls.jsonl")
    assert len(calls) == len(cuts) and all(call["latency_seconds"] > 0 for call in calls)


def test_a_failed_summary_is_a_reason_and_never_text(tmp_path: Path, log: Path) -> None:
    with ScriptedEndpoint(lambda body: say("Here you are: it is long.")) as server:
        teacher = ["--teacher", server.url, "--teacher_model", "scripted"]
        assert main([str(log), "--output_dir", str(tmp_path / "out"), *WINDOW, *teacher]) == 1
    assert {row["reason"] for row in read_jsonl(tmp_path / "out/rejected.jsonl")} == {"summary_failed"}
    runs = read_jsonl(tmp_path / "out/trajectories.jsonl")
    assert [[cut["failure"] for cut in run["cuts"]] for run in runs] == [["no_block"]] * 6


def test_an_endpoint_that_fails_midway_leaves_rows_to_resume(tmp_path: Path, log: Path) -> None:
    good = say("<summary>It is long.</summary>")
    replies = iter([good] * 4)
    arguments = [str(log), "--output_dir", str(tmp_path / "out"), *WINDOW, "--concurrency", "1"]
    with ScriptedEndpoint(lambda body: next(replies, status(400))) as server:
        teacher = ["--teacher", server.url, "--teacher_model", "scripted"]
        assert main([*arguments, *teacher]) == 1
        assert {row["reason"] for row in read_jsonl(tmp_path / "out/rejected.jsonl")} == {"endpoint_error"}
        server.script = lambda body: good
        assert main([*arguments, *teacher, "--resume"]) == 0
    assert len(read_jsonl(tmp_path / "out/trajectories.jsonl")) == 6
    assert read_jsonl(tmp_path / "out/rejected.jsonl") == []


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.jsonl"], "no file or folder nowhere.jsonl"),
        (
            ["questions.jsonl"],
            "a file of 1 questions, not of agent runs; `condensery record",
        ),
        (["empty.jsonl"], "empty.jsonl: the file is empty"),
        (["folder"], "folder: no agent run in the 0 .json, .jsonl, .traj files below it"),
        (["log.jsonl", "--limit", "0"], "--limit: expected at least 1, got 0"),
        (["log.jsonl", "--teacher", "https://[::1", "--teacher_model", "m"], "or the URL of an endpoint"),
        (["log.jsonl", "--prompt_template", "nope"], "prompt template 'nope' not found"),
        (
            ["log.jsonl", "--max_row_tokens", "60", "--max_summary_tokens", "50"],
            "no room for a summary of 50",
        ),
        (["log.jsonl", "--teacher", "gpt"], "--teacher is 'extractive' or the URL of an endpoint"),
        (["log.jsonl", "--teacher", "http://127.0.0.1:{port}/v1", "--teacher_model", "m"], "connection"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("questions.jsonl").write_text('{"question": "Who?", "answer": "Ann"}\n')
    Path("empty.jsonl").touch()
    Path("folder").mkdir()
    words = [word.format(port=closed_port()) for word in arguments]
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--output_dir", "out"])
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and complaint in message and message.count("\n") == 1
    assert not Path("out").exists()


def test_an_existing_run_is_refused_and_so_is_another_one_under_its_name(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(log), "--output_dir", str(tmp_path / "out"), *WINDOW]
    assert main(arguments) == 0
    for more, complaint in [
        ([], "already holds a run; continue it with --resume"),
        (["--resume", "--prompt_template", "full_v1"], "differs in prompt_template"),
    ]:
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, *more])
        assert stopped.value.code == 2 and complaint in capsys.readouterr().err


def test_a_dry_run_counts_and_writes_nothing(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(log), "--output_dir", str(tmp_path / "out"), *WINDOW, "--dry_run"]) == 0
    assert "6  trajectories" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_two_processes_cannot_write_one_run(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(log), "--output_dir", str(tmp_path / "out"), *WINDOW]
    assert main(arguments) == 0
    before = (tmp_path / "out/trajectories.jsonl").read_bytes()
    with JsonlAppender(tmp_path / "out/trajectories.jsonl"), pytest.raises(SystemExit) as stopped:
        main([*arguments, "--resume"])
    assert stopped.value.code == 1 and "is being written by another process" in capsys.readouterr().err
    assert (tmp_path / "out/trajectories.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", ['{"a": 1}\n', "garbage\n", '{"id": "x", "head": "x"}\n'])
def test_damaged_rows_of_an_earlier_run_are_named(
    tmp_path: Path, log: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(log), "--output_dir", str(tmp_path / "out"), *WINDOW]
    assert main(arguments) == 0
    path = tmp_path / "out/trajectories.jsonl"
    path.write_text(damage + path.read_text())
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--resume"])
    assert stopped.value.code == 1 and f"{path}:1: " in capsys.readouterr().err
    (tmp_path / "out/run.json").write_text("{}")
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--resume"])
    assert stopped.value.code == 2 and "run.json describes no run" in capsys.readouterr().err


def test_a_resumed_run_must_have_the_same_files_wherever_they_lie(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, template = tmp_path / "logs", tmp_path / "mine_v1.jinja"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.JSONL").write_text(json.dumps(run_row(number)) + "\n")
    (folder / "notes.txt").write_text("not a log")
    (folder / "broken.jsonl").symlink_to("nowhere")
    template.write_text("{{ task }} {{ history }}")
    arguments = [
        str(folder),
        "--output_dir",
        str(folder / "out"),
        "--prompt_template",
        str(template),
        *WINDOW,
    ]
    assert main(arguments) == 0 and "1 files not read" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    arguments[:3] = ["logs", "--output_dir", "logs/out"]
    assert main([*arguments, "--resume"]) == 0  # its own output below the folder is no log
    assert len(read_jsonl(folder / "out/trajectories.jsonl")) == 2
    template.write_text("{{ task }} {{ history }}!")
    with pytest.raises(SystemExit):
        main([*arguments, "--resume"])
    assert "differs in" in capsys.readouterr().err
    template.write_text("{{ task }} {{ history }}")
    (folder / "1.JSONL").unlink()
    with pytest.raises(SystemExit):
        main([*arguments, "--resume"])
    assert "1.JSONL" in capsys.readouterr().err


def test_marks_that_a_log_printed_are_not_counted(tmp_path: Path) -> None:
    row = run_row(1)
    row["messages"][2]["content"] += f" [... 77 tokens left out ...] [... {'9' * 5000} tokens left out ...]"
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    assert main([f"{tmp_path}/log.jsonl", "--output_dir", f"{tmp_path}/out", "--window_tokens", "90000"]) == 0
    assert json.loads((tmp_path / "out/run.json").read_text())["counts"]["excerpts"] == 0


def test_of_a_capture_the_conversations_are_read_and_the_exchanges_refused(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "How long is it?"},
        {"role": "assistant", "content": "Seven metres."},
    ]
    capture = tmp_path / "logs" / "capture"
    capture.mkdir(parents=True)
    (capture / "run.json").write_text("{}")
    exchange = {"outcome": "answered", "messages": turns[:1], "answer": turns[1], "latency_seconds": 0.1}
    write_jsonl(capture / "exchanges.jsonl", [exchange] * 3)
    write_jsonl(capture / "conversations.jsonl", [{"messages": turns}])
    for place in (capture, tmp_path / "logs"):
        (log,) = read_logs([place]).values()
        assert len(log.trajectories) == 1 and not log.rejected
    with pytest.raises(ValueError, match=r"import its conversations\.jsonl"):
        read_logs([capture / "exchanges.jsonl"])
