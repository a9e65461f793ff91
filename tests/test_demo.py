"""Which run `make demo` goes on with; the stages themselves are its slow half, run by `make demo`."""

import json
from pathlib import Path

import pytest

import demo


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    return tmp_path


def note(run: Path, identity: str) -> Path:
    run.mkdir()
    (run / "demo.json").write_text(json.dumps({"identity": identity, "seconds": {"web_train": 1.0}}))
    return run


def test_an_unfinished_run_is_continued_and_a_finished_one_followed(root: Path) -> None:
    assert demo.choose_run("web", "now") == root / "web-1"
    run = note(root / "web-1", "now")
    assert demo.choose_run("web", "now") == run
    assert demo.choose_run("web", "with other settings") == root / "web-2"
    assert demo.choose_run("web-quick", "now") == root / "web-quick-1"
    (run / "evaluation").mkdir()
    (run / "evaluation" / "report.md").touch()
    assert demo.choose_run("web", "now") == root / "web-2"


@pytest.mark.parametrize("notes", ["", "{", "[]", "{}"])
def test_foreign_folders_and_damaged_notes_are_left_alone(root: Path, notes: str) -> None:
    for name in ("web-mine", "web-2b", "web-quick-7", "web-"):
        (root / name).mkdir()
    (note(root / "web-3", "now") / "demo.json").write_text(notes)
    assert demo.choose_run("web", "now") == root / "web-4"


def test_stages_run_once_and_are_noted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(demo, "run_stage", lambda name, command, run: ran.append(name))
    run = note(root / "web-1", "now")
    stages = {name: ["pairs"] for name in ("web_train", "record_train", "pairs_train")}
    for _ in range(2):
        demo.run_stages(stages, run, "now")
        assert ran == ["record_train", "pairs_train"]
    assert demo.choose_run("web", "now") == run
