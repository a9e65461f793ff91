"""Output directories: no run overwrites another, and each explains itself."""

import json
from pathlib import Path

import pytest

from condensery.files.run_directory import describe_run, fingerprint, git_commit, open_run_directory


def test_a_second_run_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    directory = open_run_directory(tmp_path / "deep" / "run")
    assert open_run_directory(directory) == directory, "nothing in it yet"
    describe_run(directory, {"seed": 3})
    with pytest.raises(FileExistsError, match="--resume, choose another --output_dir, or remove it"):
        open_run_directory(directory)
    assert open_run_directory(directory, resume=True) == directory


def test_a_run_describes_its_config_inputs_and_counts(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("{}\n")
    describe_run(tmp_path, {"seed": 3, "questions": Path("q.jsonl")}, [data], {"rows": 1})
    described = json.loads((tmp_path / "run.json").read_text())
    assert described["seed"] == 3 and described["config"]["questions"] == "q.jsonl"
    assert described["inputs"] == {str(data): fingerprint(data)} and described["counts"] == {"rows": 1}
    assert described["command"] and described["python"] and described["versions"]["openai"]
    assert not list(tmp_path.glob("*.part"))


def test_a_fingerprint_changes_with_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"a")
    first = fingerprint(path)
    path.write_bytes(b"b")
    assert first != fingerprint(path) and len(first) == 16


def test_without_git_there_is_no_commit_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None
