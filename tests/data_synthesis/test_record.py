"""`condensery record`: killed and resumed it ends as if it had not been; wrong input never starts it."""

import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from condensery.compaction import Compaction
from condensery.files.jsonl import read_jsonl, write_jsonl
from condensery.trajectory import Trajectory, content_id
from data_synthesis import generate_web
from data_synthesis.record import main
from tests.scripted_endpoint import Raw, ScriptedEndpoint, call_tool, say, status

NUM_QUESTIONS = 24
STAMP = re.compile(r"answer-[0-9a-f]{16}")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("offline") / "web"
    generate_web.main(["--output_dir", str(path), "--num_questions", "6", "--num_entities", "60"])
    return path


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    write_jsonl(path, ({"question": f"Which year is number {number}?"} for number in range(NUM_QUESTIONS)))
    with open(path, "a") as file:
        file.write(
            '{"answer": "no question here"}\n{"question": "Which year is number 3?"}\n{"question": "torn'
        )
    return path


def model(body: dict) -> dict | Raw:
    """Explorer and teacher in one. The answer follows from the request alone, so that runs compare, and bears
    a stamp by which it is found again where it is stored."""
    time.sleep(0.005)
    (text,) = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
    if body["model"] == "teacher":
        failed = "number 7?" in text or "number 17?" in text
        # Without a stamp: a failed summary is asked for once more, in the same words.
        return say("nothing to say" if failed else stamp(body) + "<summary>\nThe mill is old.\n</summary>")
    if "number 5?" in text or "number 15?" in text:
        return status(400, "content_filter: policy")
    num_calls = sum(turn["role"] == "assistant" for turn in body["messages"])
    if num_calls == (1 if "<summary>" in text else 5):
        return say(stamp(body) + "<answer>1843</answer>")
    return call_tool("search", {"query": [f"mill {num_calls}"]}, f"call_{num_calls}", content=stamp(body))


def stamp(body: dict) -> str:
    return f"answer-{content_id(body)} "


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(model, models=["explorer", "teacher"]) as endpoint:
        yield endpoint


def arguments(server: ScriptedEndpoint, questions: Path, web: Path, output_dir: Path) -> list[str]:
    settings = {
        **{"questions": questions, "web": web, "output_dir": output_dir, "every_rounds": 3, "concurrency": 4},
        **{
            "explorer": server.url,
            "explorer_model": "explorer",
            "teacher": server.url,
            "teacher_model": "teacher",
        },
    }
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def final_files(directory: Path) -> dict[str, list[str]]:
    names = ["trajectories", "rejected", "compactions"]
    return {name: sorted((directory / f"{name}.jsonl").read_text().splitlines()) for name in names}


@pytest.fixture(scope="module")
def uninterrupted(
    server: ScriptedEndpoint, questions: Path, web: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert main(arguments(server, questions, web, directory)) == 1, "some rows were rejected"
    return directory


def test_every_rollout_is_one_row_or_a_named_reason(uninterrupted: Path) -> None:
    trajectories = [
        Trajectory.model_validate(row) for row in read_jsonl(uninterrupted / "trajectories.jsonl")
    ]
    rejected = read_jsonl(uninterrupted / "rejected.jsonl")
    assert len(trajectories) == NUM_QUESTIONS - 2 and {row.termination for row in trajectories} == {"answer"}
    reasons = [row["reason"] for row in rejected]
    assert reasons.count("explorer: content_filter") == 2
    assert [row["line"] for row in rejected if "line" in row] == [
        NUM_QUESTIONS + 1,
        NUM_QUESTIONS + 2,
        NUM_QUESTIONS + 3,
    ]
    assert (
        "no 'question' text" in reasons[0]
        and "line 4 already" in reasons[1]
        and "torn last line" in reasons[2]
    )
    failed = [row for row in trajectories if all(cut.failure == "no_block" for cut in row.cuts)]
    assert len(failed) == 2 and all(len(row.cuts) == 2 for row in failed)


def test_compactions_are_those_of_the_trajectories(uninterrupted: Path) -> None:
    compactions = [Compaction.model_validate(row) for row in read_jsonl(uninterrupted / "compactions.jsonl")]
    assert len({row.id for row in compactions}) == len(compactions) == NUM_QUESTIONS - 2
    assert all(len(row.expired) == 6 for row in compactions)


def test_calls_and_run_are_described(uninterrupted: Path) -> None:
    calls = read_jsonl(uninterrupted / "calls.jsonl")
    summaries = [row for row in calls if row["kind"] == "summary"]
    assert len(summaries) == NUM_QUESTIONS - 2 + 2
    assert all(row["prompt"] and row["message"]["content"] for row in summaries)
    assert all(row["latency_seconds"] > 0 for row in summaries)
    described = json.loads((uninterrupted / "run.json").read_text())
    assert described["counts"]["rollouts"] == {"answer": NUM_QUESTIONS - 2}
    assert described["counts"]["events"]["summary no_block"] == 4
    assert "OPENAI" not in json.dumps(described["versions"]) and len(described["inputs"]) == 2


def kill_and_resume(
    server: ScriptedEndpoint, command: list[str], directory: Path, num_kills: int, num_requests: int
) -> int:
    """SIGKILL the command at random points of its work, then let it end; how many kills hit it running.

    No request whose answer is stored is ever sent again.
    """
    rng, num_hits = random.Random(num_kills), 0
    step = max(2, 2 * num_requests // num_kills)
    for _ in range(num_kills):
        stored, before, until = stored_stamps(directory), len(server.requests), rng.randrange(step // 2)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and len(server.requests) - before <= until:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.02)
        num_hits += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not stored & {stamp(body).strip() for body in server.requests[before:]}
    stored, before = stored_stamps(directory), len(server.requests)
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 1
    assert not stored & {stamp(body).strip() for body in server.requests[before:]}
    return num_hits


def stored_stamps(directory: Path) -> set[str]:
    calls = directory / "calls.jsonl"
    lines = calls.read_text().split("\n")[:-1] if calls.exists() else []
    answers = [json.loads(line)["message"]["content"] for line in lines if '"message"' in line]
    return {found[0] for answer in answers if (found := STAMP.match(answer))}


def test_killed_and_resumed_equals_uninterrupted(
    server: ScriptedEndpoint, questions: Path, web: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    words = [*arguments(server, questions, web, tmp_path / "run"), "--resume"]
    command = [sys.executable, "-m", "data_synthesis.record", *words]
    assert kill_and_resume(server, command, tmp_path / "run", 4, NUM_QUESTIONS * 5) >= 2
    assert final_files(tmp_path / "run") == final_files(uninterrupted)


@pytest.mark.slow
def test_killed_fifty_times_among_300_questions_and_resumed_equals_uninterrupted(
    server: ScriptedEndpoint, web: Path, tmp_path: Path
) -> None:
    many = tmp_path / "many.jsonl"
    write_jsonl(many, ({"question": f"Which year is number {number}?"} for number in range(300)))
    assert main(arguments(server, many, web, tmp_path / "whole")) == 1
    command = [sys.executable, "-m", "data_synthesis.record"]
    command += [*arguments(server, many, web, tmp_path / "run"), "--resume"]
    assert kill_and_resume(server, command, tmp_path / "run", 50, 300 * 5) >= 25
    assert final_files(tmp_path / "run") == final_files(tmp_path / "whole")


def test_resume_mends_torn_lines_and_repeats_no_finished_rollout(
    server: ScriptedEndpoint, questions: Path, web: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    for name in ("run.json", "trajectories.jsonl", "calls.jsonl", "rejected.jsonl"):
        (tmp_path / name).write_bytes((uninterrupted / name).read_bytes())
    rows = (tmp_path / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "trajectories.jsonl").write_bytes(b"".join(rows[:-1]) + rows[-1][: len(rows[-1]) // 2])
    before = len(server.requests)
    assert main([*arguments(server, questions, web, tmp_path), "--resume"]) == 1
    assert final_files(tmp_path) == final_files(uninterrupted)
    asked = {
        json.dumps(request["messages"]).split("number ")[1].split("?")[0]
        for request in server.requests[before:]
    }
    assert asked == {"5", "15"}, "those that the endpoint refused; the torn row is played back from its calls"


def test_what_an_outage_spoiled_is_run_again_and_its_rejection_superseded(
    questions: Path, web: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    down: set[str] = set()

    def script(body: dict) -> dict | Raw:
        return status(401, "key expired") if body["model"] in down else model(body)

    with ScriptedEndpoint(script, models=["explorer", "teacher"]) as server:
        words = [*arguments(server, questions, web, tmp_path), "--resume"]
        for role, reason in ("explorer", "explorer: auth"), ("teacher", "summarizer: auth"):
            down.add(role)
            assert main(words) == 1
            reasons = [row["reason"] for row in read_jsonl(tmp_path / "rejected.jsonl")]
            assert reasons.count(reason) >= NUM_QUESTIONS - 2
            assert read_jsonl(tmp_path / "trajectories.jsonl") == []
            down.clear()
        assert main(words) == 1
    assert final_files(tmp_path) == final_files(uninterrupted)


def test_scripted_explorer_and_oracle_need_no_endpoint(
    web: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--questions",
        str(web),
        "--output_dir",
        str(tmp_path / "run"),
        "--every_rounds",
        "2",
        "--rollouts",
        "2",
    ]
    assert main(words) == 0
    assert "12 rollouts, 0 rejected" in capsys.readouterr().out
    rows = [Trajectory.model_validate(row) for row in read_jsonl(tmp_path / "run" / "trajectories.jsonl")]
    assert {row.rollout for row in rows} == {0, 1} and all(row.facts for row in rows)
    assert all(cut.author == "oracle" and cut.summary for row in rows for cut in row.cuts)


def test_a_smaller_window_is_advised_only_where_no_summary_was_asked_for(
    server: ScriptedEndpoint, web: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number_7 = tmp_path / "number_7.jsonl"
    write_jsonl(number_7, [{"question": "Which year is number 7?"}])  # its summaries fail
    words = arguments(server, number_7, web, tmp_path / "failed")
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "summary no_block" in printed.out and "nothing was compacted" not in printed.err
    words = arguments(server, number_7, web, tmp_path / "roomy")
    assert main([*words, "--every_rounds", "60", "--window_tokens", "32768"]) == 0
    assert "nothing was compacted" in capsys.readouterr().err


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_wrong_input_is_one_line_and_nothing_is_started(
    web: Path, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint(*words: object, questions: Path = web) -> str:
        given = ["--questions", questions, "--output_dir", tmp_path / "run", *words]
        return refused([str(word) for word in given], capsys)

    empty, foreign = tmp_path / "empty.jsonl", tmp_path / "foreign.jsonl"
    empty.touch()
    foreign.write_text('{"prompt": "What?"}\n')
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    assert "explorer m at http" in complaint("--explorer", url, "--explorer_model", "m")
    assert "explorer_model is missing" in complaint("--explorer", url)
    assert "teacher is 'gpt'" in complaint("--teacher", "gpt")
    assert "window_tokens is 900" in complaint("--window_tokens", "900")
    assert "prompt template 'mine' not found" in complaint("--prompt_template", "mine")
    assert "holds the request and the summary" in complaint("--teacher_window_tokens", "4096")
    assert "--rollouts: expected at least 1" in complaint("--rollouts", "0")
    assert "nowhere.jsonl" in complaint(questions=tmp_path / "nowhere.jsonl")
    assert "it is empty" in complaint("--web", web, questions=empty)
    assert "line 1: no 'question' text in the row; its keys are prompt" in complaint(
        "--web", web, questions=foreign
    )
    assert "give --web" in complaint(questions=questions)
    assert "has no facts" in complaint("--web", web, questions=questions)
    assert "share is 1.5" in complaint("--share", "1.5")
    assert "top_p is 0" in complaint("--top_p", "0")
    assert "--reserve_tokens: expected at least 0" in complaint("--reserve_tokens", "-1")
    assert "--every_rounds: expected at least 1" in complaint("--every_rounds", "0")
    other = tmp_path / "other"
    generate_web.main(
        ["--output_dir", str(other), "--num_questions", "6", "--num_entities", "60", "--seed", "9"]
    )
    capsys.readouterr()
    assert "the questions are of another web" in complaint("--web", other)
    (other / "pages.jsonl").write_text("")
    assert "holds no page" in complaint("--web", other)
    assert not (tmp_path / "run").exists()


def test_an_output_that_holds_a_run_is_refused_and_so_is_another_configuration(
    web: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--questions", str(web), "--output_dir", str(tmp_path), "--limit", "1"]
    assert main(words) == 0
    capsys.readouterr()
    assert "already holds a run" in refused(words, capsys)
    assert "max_calls was 60, is 9" in refused([*words, "--resume", "--max_calls", "9"], capsys)
    assert main([*words, "--resume", "--limit", "2"]) == 0
    assert len(read_jsonl(tmp_path / "trajectories.jsonl")) == 2
    capsys.readouterr()
    (tmp_path / "run.json").write_text('{"config": ')
    assert "run.json is damaged" in refused([*words, "--resume"], capsys)


def test_a_template_edited_between_run_and_resume_is_noticed(
    web: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = tmp_path / "mine_v1.jinja"
    template.write_text("Task: {{ task }}\n{{ history }}")
    words = ["--questions", str(web), "--output_dir", str(tmp_path / "run"), "--limit", "1"]
    words += ["--prompt_template", str(template)]
    assert main(words) == 0
    template.write_text("The task is {{ task }}\n{{ history }}")
    capsys.readouterr()
    assert "the prompt template are not the same" in refused([*words, "--resume"], capsys)
    assert len(read_jsonl(tmp_path / "run" / "trajectories.jsonl")) == 1


def test_connections_end_with_the_event_loop_they_were_opened_in(
    server: ScriptedEndpoint, questions: Path, web: Path, tmp_path: Path
) -> None:
    words = [*arguments(server, questions, web, tmp_path / "run"), "--limit", "4"]
    command = [sys.executable, "-X", "dev", "-m", "data_synthesis.record", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, "the unusable rows of the question file"
    assert "Event loop is closed" not in done.stderr and "ResourceWarning" not in done.stderr


def test_dry_run_starts_nothing_and_skip_forgives(
    server: ScriptedEndpoint, questions: Path, web: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*arguments(server, questions, web, tmp_path / "run"), "--limit", "2"]
    assert main([*words, "--dry_run"]) == 0
    assert "would make 2 rollouts of 2 questions, 3 questions rejected" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert main([*words, "--on_error", "skip"]) == 0


def test_two_ray_workers_write_the_rows_of_one_process(web: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = ["--questions", str(web), "--every_rounds", "2", "--rollouts", "2"]
    assert main([*words, "--output_dir", str(tmp_path / "here")]) == 0
    command = [sys.executable, "-m", "data_synthesis.record", *words, "--output_dir", str(tmp_path / "ray")]
    done = subprocess.run([*command, "--executor", "ray"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert final_files(tmp_path / "ray") == final_files(tmp_path / "here")
    stored = [
        sorted((row["trajectory_id"], row["step"], row["kind"]) for row in read_jsonl(path / "calls.jsonl"))
        for path in (tmp_path / "ray", tmp_path / "here")
    ]
    assert stored[0] == stored[1]
