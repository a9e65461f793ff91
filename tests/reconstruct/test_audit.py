"""The audit through its command: an offline web, its recorded run, and what rewards say to damage."""

import json
from pathlib import Path

import pytest

from condensery.cli import main as condensery
from condensery.files.jsonl import read_jsonl, write_jsonl
from condensery.trajectory import Cut
from reconstruct.audit import ask
from reconstruct.audit_report import figures_of, preference, to_markdown, wilson_interval
from reconstruct.damage import KINDS
from reconstruct.scores import Reward
from reconstruct.trials import Trial, why_not
from tests.reconstruct.known_histories import FACTS, HONEST, compaction


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    web = (
        f"web --output_dir {folder}/web --num_questions 30 --adversarial 0.3 --updates 0.5 --num_entities 80"
    )
    assert condensery(web.split()) == 0
    record = f"record --questions {folder}/web --output_dir {folder}/record --window_tokens 700"
    assert condensery([*record.split(), "--reserve_tokens", "0"]) == 0
    return folder / "record"


def audit(recorded: Path, out: Path, *more: str) -> int:
    return condensery(["audit-reward", str(recorded), "--output_dir", str(out), *more])


def read_report(out: Path) -> dict:
    """The figures, without the seconds."""
    rewards = json.loads((out / "report.json").read_text())["rewards"]
    return {name: figures | {"seconds_per_verdict": None} for name, figures in rewards.items()}


def test_the_command(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    negatives = tmp_path / "negatives.jsonl"
    assert audit(recorded, tmp_path / "out", "--limit", "12", "--write_negatives", str(negatives)) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == (tmp_path / "out" / "report.md").read_text().strip()
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    figures = report["rewards"]["lexical_guarded"]["honest_over"]
    for kind in ("empty", "copy", "repetition", "padding", "wrong_facts", "vague"):
        assert figures[kind]["n"] == 12 and figures[kind]["win_rate"] > 0.8, kind
    # As published nothing holds a value to its subject, and a copy restores all.
    published = report["rewards"]["lexical"]["honest_over"]
    assert published["copy"]["win_rate"] < 0.5 < figures["copy"]["win_rate"]
    assert published["wrong_facts"]["win_rate"] < figures["wrong_facts"]["win_rate"]
    assert figures["source_dropped"]["win_rate_ci"][0] < figures["source_dropped"]["win_rate"]
    rows = read_jsonl(negatives)
    assert {row["kind"] for row in rows} == set(KINDS)
    assert all(row["summary"] != row["honest"] for row in rows)
    assert len(rows) == sum(each["n"] for each in figures.values())
    with pytest.raises(SystemExit, match="2"):
        audit(recorded, tmp_path / "other", "--write_negatives", str(negatives))
    assert "name another file" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_resumed_asks_for_no_verdict_twice(recorded: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert audit(recorded, whole, "--limit", "4") == 0
    assert audit(recorded, out, "--limit", "2", "--rewards", "lexical") == 0
    before = read_jsonl(out / "verdicts.jsonl")
    with pytest.raises(SystemExit):
        audit(recorded, out, "--limit", "4")
    with (out / "verdicts.jsonl").open("a") as file:
        file.write('{"compaction_id": "torn')
    assert audit(recorded, out, "--limit", "4", "--resume") == 0
    after = read_jsonl(out / "verdicts.jsonl")
    assert after[: len(before)] == before
    done = {(row["reward"], row["compaction_id"]): row["scores"] for row in after}
    asked_again = {(row["reward"], row["compaction_id"]) for row in after[len(before) :]}
    assert any((row["reward"], row["compaction_id"]) not in asked_again for row in before)
    assert done == {
        (row["reward"], row["compaction_id"]): row["scores"] for row in read_jsonl(whole / "verdicts.jsonl")
    }
    assert read_report(out) == read_report(whole)
    assert audit(recorded, out, "--limit", "2", "--resume") == 0
    assert read_report(out)["lexical"]["honest_over"]["empty"]["n"] == 2
    num_lines = len(after)
    assert audit(recorded, out, "--limit", "4", "--resume") == 0
    assert len(read_jsonl(out / "verdicts.jsonl")) == num_lines


def test_missing_verdicts_count_neither_way() -> None:
    scores = iter([[1.0, 0.5], [1.0, None], [float("nan"), 0.2], [1.0, 1.0], [0.5, 1.0]])
    calls = [0]

    def score(_, summaries: list[str]) -> list[float | None]:
        calls[0] += len(summaries)
        return next(scores)

    reward = Reward("r", score, lambda: calls[0])
    rows = [ask(reward, Trial(compaction(), "full_v1", {"honest": HONEST, "empty": ""})) for _ in range(5)]
    assert {row.num_model_calls for row in rows} == {2}
    figures = preference(rows, "honest", "empty")
    assert figures == {
        "n": 3, "wins": 1, "ties": 1, "missing": 2, "win_rate": 0.5, "win_rate_ci": wilson_interval(1.5, 3)
    }  # fmt: skip
    report = {
        "rewards": {"r": figures_of(rows)},
        "data": {"num_compactions": 5, "skipped": {"without a summary": 2}},
    }
    text = to_markdown(report)
    assert (
        "| empty | 3 | 0.50 [0.13, 0.87] = 0.33 |" in text
        and "2 of 10" in text
        and "| copy | 0 | - |" in text
    )
    assert "5 compactions; 2 without a summary" in text


WHY_NOT = [
    ({}, HONEST, None),
    ({"facts": None}, HONEST, "without known facts"),
    ({"facts": FACTS[2:]}, HONEST, "with nothing to keep"),
    ({}, None, "without a summary"),
    ({}, HONEST.replace("12,345", "12,346"), "whose summary loses a fact"),
]


@pytest.mark.parametrize(("changed", "summary", "reason"), WHY_NOT)
def test_only_honest_summaries_are_used(changed: dict, summary: str | None, reason: str | None) -> None:
    of = compaction().model_copy(update=changed)
    assert why_not(of, Cut(position=1, summary=summary, failure=None if summary else "empty")) == reason


def test_wilson_interval() -> None:
    assert wilson_interval(0, 0) is None
    assert wilson_interval(100, 100) == [0.963, 1.0]
    assert wilson_interval(50, 100) == [0.4038, 0.5962]


def test_a_run_that_cannot_be_audited(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row | {"facts": None} for row in read_jsonl(recorded / "trajectories.jsonl")]
    (tmp_path / "log").mkdir()
    write_jsonl(tmp_path / "log" / "trajectories.jsonl", rows)
    for path in (tmp_path / "log", tmp_path):
        with pytest.raises(SystemExit, match="2"):
            audit(path, tmp_path / "out")
    errors = capsys.readouterr().err.strip().splitlines()
    assert "without known facts" in errors[0] and "condensery record" in errors[0]
    assert "trajectories.jsonl" in errors[1] and not (tmp_path / "out").exists()
