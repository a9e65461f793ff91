"""`condensery instances`: contexts cut at closed positions, a reason for what is unused, balanced draws."""

import json
from pathlib import Path

import pytest

from condensery.files.jsonl import read_jsonl, read_records, write_jsonl
from condensery.message import Message, closed_positions
from condensery.prompt import render_history
from condensery.tokens import estimate_tokens
from condensery.trajectory import Cut, Trajectory
from reconstruct.blocks import join_blocks
from reconstruct.instance import Instance
from reconstruct.instances import main
from tests.reconstruct.histories import call, result, steps


def a_run(number: int, num_steps: int = 40, **changes: object) -> Trajectory:
    question = Message(role="user", content=f"When was mill {number} built?")
    fields = {
        "id": f"t{number}",
        "question_id": f"q{number}",
        "question": question.content,
        "head": 1,
        "messages": [question, *steps(num_steps), Message(role="assistant", content="In 1843.")],
    }
    return Trajectory.model_validate(fields | changes)


def build(
    tmp_path: Path, runs: dict[str, list[Trajectory]], *arguments: str
) -> tuple[int, list[Instance], Path]:
    for name, rows in runs.items():
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        write_jsonl(tmp_path / name / "trajectories.jsonl", (run.model_dump() for run in rows))
    out = tmp_path / "out"
    words = [*(str(tmp_path / name) for name in runs), "--output_dir", str(out), "--context_tokens", "512"]
    words += ["--held_out", "0"]
    status = main([*words, *arguments])
    file = out / "instances.jsonl"
    return status, list(read_records(file, Instance)) if file.exists() else [], out


def test_a_run_is_cut_where_its_context_is_full_at_a_closed_position(tmp_path: Path) -> None:
    status, (found,), out = build(tmp_path, {"run": [a_run(1)]})
    assert status == 0
    expired = found.compaction.expired
    assert expired == a_run(1).messages[1 : 1 + len(expired)] and closed_positions(expired)[-1] == len(
        expired
    )
    assert 400 < sum(estimate_tokens(render_history([m]) + "\n") for m in expired) <= 512
    assert join_blocks(found.blocks) == render_history(expired)
    assert len(found.blocks) >= 8 and len(found.masks) == 2
    assert (found.source, found.language, found.context_tokens) == (str(tmp_path / "run"), "en", 512)
    card = json.loads((out / "data_card.json").read_text())
    assert card["funnel"] == {"trajectories": 1, "contexts": 1, "usable": 1, "instances": 1}
    assert card["block_kinds"] == {"result": len(found.blocks)}
    assert json.loads((out / "run.json").read_text())["counts"]["instances"] == 1
    assert not (out / "candidates.jsonl").exists() and not (out / "held_out.jsonl").exists()
    assert "| 512 | 1 |" in (out / "data_card.md").read_text()


def test_the_newest_turns_stay_where_asked(tmp_path: Path) -> None:
    _, (plain,), _ = build(tmp_path, {"run": [a_run(1)]})
    _, (found,), _ = build(tmp_path / "c", {"run": [a_run(1)]}, "--retained_tokens", "100")
    kept = found.compaction.retained
    assert kept and [*found.compaction.expired, *kept] == plain.compaction.expired
    assert closed_positions(kept)[-1] == len(kept)
    assert sum(estimate_tokens(render_history([m]) + "\n") for m in kept) <= 100
    assert plain.compaction.retained == []


def test_a_run_that_was_compacted_starts_again_from_its_summary(tmp_path: Path) -> None:
    cuts = [
        Cut(position=21, summary="Mills 0 to 9 were built from 1840 on.", author="x"),
        Cut(position=31, failure="empty"),
    ]
    run = a_run(1, cuts=cuts)
    status, found, _ = build(tmp_path, {"run": [run]})
    assert status == 0 and [each.compaction.index for each in found] == [0, 1]
    first, second = found
    assert first.compaction.expired == run.messages[1:21] and first.compaction.last_summary is None
    assert (
        second.compaction.last_summary == cuts[0].summary and second.compaction.expired[0] == run.messages[21]
    )
    assert second.blocks[0].kind == "memory" and "[memory] Mills 0 to 9" in second.blocks[0].text


def test_earlier_turns_are_maskable_where_asked(tmp_path: Path) -> None:
    cuts = [Cut(position=21, summary="Mills 0 to 9 were built from 1840 on.", author="x")]
    arguments = ("--earlier_tokens", "120", "--mask_ratio", "0.9")
    _, (first, second), _ = build(tmp_path, {"run": [a_run(1, cuts=cuts)]}, *arguments)
    kinds = [block.kind for block in second.blocks]
    num_memory = kinds.index("result")
    assert num_memory > 2 and set(kinds[:num_memory]) == {"memory"} and "memory" not in kinds[num_memory:]
    assert "Mill 9 was" in "".join(block.text for block in second.blocks[: num_memory - 1])
    assert "Mill 0 was" not in "".join(block.text for block in second.blocks)
    assert "memory" not in [block.kind for block in first.blocks]


def test_every_piece_that_is_not_used_has_a_reason(tmp_path: Path) -> None:
    long_line = [call(0), result(0, "A" * 300_000), *steps(40)]
    runs = [
        a_run(1),
        a_run(1),
        a_run(2, num_steps=2),
        a_run(3, messages=[a_run(3).messages[0], *long_line]),
        a_run(4, question="Why? " * 300),
        a_run(5, messages=[a_run(5).messages[0], call(0), result(0, "a" * 1200), *steps(40)]),
        a_run(6, messages=a_run(6).messages[:1]),
        a_run(
            7, messages=[a_run(7).messages[0], call(0), *(result(9, "never answers it") for _ in range(90))]
        ),
    ]
    status, found, out = build(tmp_path, {"run": runs})
    assert status == 1
    rows = [(row["trajectory_id"], row["reason"]) for row in read_jsonl(out / "rejected.jsonl")]
    assert rows == [
        ("t1", "duplicate"),
        ("t2", "too_short"),
        ("t3", "turn_too_long"),
        ("t4", "head_too_long"),
        ("t5", "few_blocks"),
        ("t6", "too_short"),
        ("t7", "turn_too_long"),
    ]
    assert len(found) == 1
    card = json.loads((out / "data_card.json").read_text())
    assert card["funnel"]["contexts"] == 8 == len(found) + sum(card["unused"].values())
    assert card["funnel"]["trajectories"] == 7


def test_being_short_or_not_drawn_is_no_fault(tmp_path: Path) -> None:
    status, found, out = build(tmp_path, {"run": [a_run(1), a_run(2, num_steps=2), a_run(3)]}, "--limit", "1")
    assert status == 0 and len(found) == 1
    assert {row["reason"] for row in read_jsonl(out / "rejected.jsonl")} == {"too_short", "not_drawn"}


def test_a_draw_is_balanced_by_source_language_and_length_and_seeded(tmp_path: Path) -> None:
    web = [a_run(number, language="zh" if number < 4 else "en") for number in range(20)]
    code = [a_run(number) for number in range(100, 106)]
    words = ("--context_tokens", "512", "768", "--limit", "16")
    _, found, out = build(tmp_path, {"web": web, "code": code}, *words)
    sources = [Path(each.source).name for each in found]
    assert sources.count("web") == sources.count("code") == 8
    languages = [each.language for each in found if Path(each.source).name == "web"]
    assert languages.count("zh") == languages.count("en") == 4
    assert [each.context_tokens for each in found].count(512) == 8
    _, again, _ = build(tmp_path, {"web": web, "code": code}, *words, "--resume", "true")
    assert again == found
    _, other, _ = build(tmp_path / "o", {"web": web, "code": code}, *words, "--seed", "1")
    assert {each.id for each in other} != {each.id for each in found}
    assert len(json.loads((out / "data_card.json").read_text())["groups"]) == 6


def test_more_is_drawn_from_one_source_where_the_other_runs_out(tmp_path: Path) -> None:
    runs = {"web": [a_run(number) for number in range(6)], "code": [a_run(9)]}
    _, found, _ = build(tmp_path, runs, "--limit", "5")
    assert [Path(each.source).name for each in found].count("code") == 1 and len(found) == 5


def test_questions_are_held_out_of_training(tmp_path: Path) -> None:
    """One question stays on one side, whatever its runs."""
    runs = [a_run(number, question_id=f"q{number % 10}", question=f"When was mill {number % 10} built?")
            for number in range(30)]  # fmt: skip
    status, found, out = build(tmp_path, {"run": runs}, "--held_out", "0.2")
    held_out = list(read_records(out / "held_out.jsonl", Instance))
    questions = [{each.compaction.question_id for each in split} for split in (found, held_out)]
    assert status == 0 and len(found) + len(held_out) == 30
    assert len(questions[1]) == 2 and not questions[0] & questions[1]
    card = json.loads((out / "data_card.json").read_text())
    assert (card["instances"], card["held_out"]) == (30, len(held_out))


def test_masks_depend_on_seed_and_history_alone(tmp_path: Path) -> None:
    _, alone, _ = build(tmp_path, {"run": [a_run(2)]})
    _, both, _ = build(tmp_path / "b", {"run": [a_run(1), a_run(2)]})
    assert both[1].masks == alone[0].masks and both[0].masks != both[1].masks
    _, other, _ = build(tmp_path / "s", {"run": [a_run(2)]}, "--seed", "5")
    assert other[0].masks != alone[0].masks


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found, out = build(tmp_path, {"run": [a_run(1)]}, "--dry_run")
    assert status == 0 and not found and not out.exists()
    assert "1 training contexts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mask_ratio", "1"], "--mask_ratio is 1; a share above 0 and below 1"),
        (["--context_tokens", "64"], "--context_tokens 64 has no room"),
        (["--retained_tokens", "400"], "at most a quarter, 128"),
        (["--held_out", "1.5"], "--held_out is 1.5; a share below 1, or a whole number of questions"),
        (["--held_out", "0.1"], "--held_out 0.1 means 0 of 1 questions; both sides need at least one"),
        (["--context_tokens", "9000"], "no instance at --context_tokens [9000]: 1 too_short"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        build(tmp_path, {"run": [a_run(1)]}, *arguments)
    error = capsys.readouterr().err
    assert caught.value.code == 2 and message in error and len(error.splitlines()) == 1


def test_a_run_directory_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, {"run": [a_run(1)]})
    with pytest.raises(SystemExit):
        build(tmp_path, {"run": [a_run(1)]})
    assert "--resume" in capsys.readouterr().err
