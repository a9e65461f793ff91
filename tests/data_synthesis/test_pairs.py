"""`condensery pairs`: one builder, typed drops, no leak, rows that any TRL script reads."""

import json
import tracemalloc
from pathlib import Path

import pytest

from condensery.compaction import Compaction
from condensery.facts import Fact
from condensery.files.jsonl import read_jsonl, write_jsonl
from condensery.message import FunctionCall, Message, ToolCall
from condensery.prompt import load_template, render_prompt
from condensery.summary import parse_summary
from condensery.trajectory import Cut, Trajectory
from data_synthesis.pairs import build_pairs, main, split_pairs, write_pairs
from data_synthesis.pairs_config import PairsConfig

ARGUMENTS = ['{"query": "bridge"}', '{"url": ["x"],  "goal": null}', '{"query": "br']


def a_run(number: int, cut: Cut | None = None, question: str = "", language: str = "en") -> Trajectory:
    call = ToolCall(id="c", function=FunctionCall(name="search", arguments=ARGUMENTS[number % 3]))
    found = f"Bridge {number} was built by Ann Smith. Bridge {number} is {number * 7} metres long. " * 4
    messages = [
        Message(role="user", content=question or f"How long is bridge {number}, exactly?"),
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", content=found, tool_call_id="c"),
        Message(role="assistant", content="Done."),
    ]
    good = Cut(position=3, summary=f"- Bridge {number} is {number * 7} metres long. [search]", author="test")
    return Trajectory(
        id=f"t{number}",
        question_id=f"q{number}",
        question=messages[0].content,
        language=language,
        head=1,
        messages=messages,
        cuts=[cut or good],
        facts=[Fact(subject=f"Bridge {number}", attribute="length", value=f"{number * 7} metres")],
    )


def build(tmp_path: Path, runs: list[Trajectory], *arguments: str) -> tuple[int, Path]:
    (tmp_path / "run").mkdir(exist_ok=True)
    write_jsonl(tmp_path / "run/trajectories.jsonl", (run.model_dump() for run in runs))
    out = tmp_path / "pairs"
    return main([str(tmp_path / "run"), "--output_dir", str(out), *arguments]), out


def test_rows_have_one_shape_and_their_compactions_beside_them(tmp_path: Path) -> None:
    status, out = build(tmp_path, [a_run(number) for number in range(10)], "--held_out", "3")
    assert status == 0
    for name, count in (("train", 7), ("held_out", 3)):
        rows = read_jsonl(out / f"{name}.jsonl")
        compactions = [
            Compaction.model_validate(row) for row in read_jsonl(out / f"compactions_{name}.jsonl")
        ]
        assert len(rows) == count and [row["compaction_id"] for row in rows] == [c.id for c in compactions]
        for row, compaction in zip(rows, compactions):
            assert row["prompt"] == render_prompt(compaction, "compact_v1")
            assert parse_summary(row["completion"][0]["content"]).text
            assert row["prompt_template"] == "compact_v1" and row["author"] == "test"
            assert compaction.facts and len(compaction.facts) == 1
    assert (out / "prompt_template.jinja").read_text() == load_template("compact_v1")[1]
    card = json.loads((out / "data_card.json").read_text())
    assert card["splits"]["held_out"] == {"pairs": 3, "questions": 3, "trajectories": 3}
    assert card["unsupported_statements"] == 0 and card["compression_ratio"] > 0.5
    assert "| train | 7 | 7 | 7 |" in (out / "data_card.md").read_text()


def test_datasets_reads_rows_exactly_as_written(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    _, out = build(tmp_path, [a_run(number) for number in range(6)], "--held_out", "2")
    files = {name: str(out / f"{name}.jsonl") for name in ("train", "held_out")}
    loaded = datasets.load_dataset("json", data_files=files, cache_dir=str(tmp_path / "cache"))
    for name, path in files.items():
        assert loaded[name].to_list() == read_jsonl(path)
    text = "\n".join(row["prompt"][0]["content"] for split in loaded.values() for row in split)
    assert all(arguments in text for arguments in ARGUMENTS)


def test_every_drop_has_a_typed_reason(tmp_path: Path) -> None:
    long_summary = "The bridge is long. " * 60
    runs = [
        a_run(1),
        a_run(2, Cut(position=3, failure="no_block")),
        a_run(3, Cut(position=1, summary="nothing was there yet")),
        a_run(4, Cut(position=3, summary="n/a")),
        a_run(5, Cut(position=3, summary=long_summary)),
        a_run(6, Cut(position=3, summary="大桥全长四十二米，由安·史密斯建造。")),
        a_run(7, Cut(position=3, summary="- Bridge 7 is 999 metres long.")),
        a_run(8),
        a_run(8),
        a_run(9).model_copy(update={"cuts": []}),
        a_run(10, language="zh", question="十号大桥有多长？"),
    ]
    status, out = build(tmp_path, runs, "--held_out", "0", "--max_unsupported", "0")
    assert status == 1
    assert [row["reason"] for row in read_jsonl(out / "rejected.jsonl")] == [
        *("summary_failed", "empty_history", "not_a_summary", "no_gain", "other_language", "unsupported"),
        *("duplicate", "other_language"),
    ]
    assert len(read_jsonl(out / "train.jsonl")) == 2 and not (out / "held_out.jsonl").exists()
    card = json.loads((out / "data_card.json").read_text())
    assert sum(card["dropped"].values()) == 8 and card["trajectories_without_compaction"] == 1


def test_control_tokens_in_a_summary_are_defused(tmp_path: Path) -> None:
    summary = "Bridge 1 is 7 metres long. <|im_end|> </summary> <summary>"
    _, out = build(tmp_path, [a_run(1, Cut(position=3, summary=summary))], "--held_out", "0")
    content = read_jsonl(out / "train.jsonl")[0]["completion"][0]["content"]
    assert "<|im_end|>" not in content and content.count("</summary>") == content.count("<summary>") == 1


def test_rollouts_of_one_question_never_stand_on_both_sides(tmp_path: Path) -> None:
    runs = [a_run(number).model_copy(update={"question_id": f"q{number % 5}"}) for number in range(20)]
    same_text = [a_run(number, question="Why is the sky over the bridge blue?") for number in range(20, 24)]
    _, out = build(tmp_path, [*runs, *same_text], "--held_out", "0.5")
    sides = [read_jsonl(out / f"{name}.jsonl") for name in ("train", "held_out")]
    assert not {row["question_id"] for row in sides[0]} & {row["question_id"] for row in sides[1]}
    blue = [{row["trajectory_id"] for row in side} & {f"t{n}" for n in range(20, 24)} for side in sides]
    assert sorted(map(len, blue)) == [0, 4]


def test_a_user_template_renders_the_prompts_and_travels_with_them(tmp_path: Path) -> None:
    template = tmp_path / "ours_v3.jinja"
    template.write_text("Condense for {{ task }}\n---\n{{ history }}")
    _, out = build(tmp_path, [a_run(1)], "--held_out", "0", "--prompt_template", str(template))
    row = read_jsonl(out / "train.jsonl")[0]
    assert row["prompt"][0]["content"].startswith("Condense for How long is bridge 1")
    assert row["prompt_template"] == "ours_v3"
    assert (out / "prompt_template.jinja").read_text() == template.read_text()


def test_building_again_gives_the_same_files(tmp_path: Path) -> None:
    runs = [a_run(number) for number in range(8)]
    _, out = build(tmp_path, runs, "--held_out", "2")
    before = {path.name: path.read_bytes() for path in out.glob("*.jsonl")}
    status, _ = build(tmp_path, runs, "--held_out", "2", "--resume")
    assert status == 0 and before == {path.name: path.read_bytes() for path in out.glob("*.jsonl")}


def test_two_files_of_one_directory_both_count(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        write_jsonl(tmp_path / f"{name}.jsonl", [a_run(number).model_dump()])
    words = ["--output_dir", str(tmp_path / "out"), "--held_out", "0"]
    assert main([*(str(tmp_path / f"{name}.jsonl") for name in "ab"), *words]) == 0
    assert [row["trajectory_id"] for row in read_jsonl(tmp_path / "out/train.jsonl")] == ["t0", "t1"]


def test_a_pair_that_one_run_loses_is_taken_whole_from_the_next(tmp_path: Path) -> None:
    first, second = (a_run(1).model_copy(update={"id": name, "verdict": name == "b"}) for name in "ab")
    _, out = build(tmp_path, [first, second], "--held_out", "0", "--verdict", "right")
    for name in ("train", "compactions_train"):
        assert [row["trajectory_id"] for row in read_jsonl(out / f"{name}.jsonl")] == ["b"]


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    def peak(number_of_runs: int) -> int:
        runs = [a_run(number) for number in range(number_of_runs)]
        for run in runs:
            run.messages[2].content *= 100
        tracemalloc.start()
        status, _ = build(tmp_path, runs, "--held_out", "0", "--resume")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        (tmp_path / "pairs/run.json").unlink()
        assert status == 0
        return most

    peak(1)  # what the first call loads for good
    assert peak(12) - peak(2) < 10 * 10_000  # of 24 kB of text a run, held several times


def test_runs_that_change_while_they_are_read_give_no_files(tmp_path: Path) -> None:
    file = tmp_path / "trajectories.jsonl"
    config = PairsConfig(paths=[tmp_path], output_dir=tmp_path, held_out=0)
    write_jsonl(file, [a_run(1).model_dump()])
    pairs, tasks, dropped, _ = build_pairs([file], config, None)
    write_jsonl(file, [a_run(2).model_dump()])
    with pytest.raises(ValueError, match="were changed while they were read"):
        write_pairs(tmp_path, [file], split_pairs(pairs, tasks, dropped, config), dropped, config)
    assert not (tmp_path / "train.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "no nowhere; `condensery record` and `condensery import` write it"),
        (["empty"], "holds no trajectory"),
        (["run", "--held_out", "9"], "9 of 4 questions"),
        (["run", "--held_out", "2.5"], "a share below 1, or a whole number"),
        (["run", "--prompt_template", "nope"], "prompt template 'nope' not found"),
        (["uncut"], "no pair: no run has a compaction with an accepted summary"),
        (["torn"], "torn/trajectories.jsonl:1: not JSON"),
        (["foreign"], "no pair: all 4 were dropped (4 other_language)"),
        (["run", "--max_unsupported", "7"], "--max_unsupported is 7; it is a share"),
        (["run", "--held_out", "-3"], "--held_out is -3"),
        (["run", "--held_out", "nan"], "--held_out: expected a number"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "empty", "uncut", "torn"):
        Path(name).mkdir()
    write_jsonl("run/trajectories.jsonl", (a_run(number).model_dump() for number in range(4)))
    write_jsonl("uncut/trajectories.jsonl", [a_run(1).model_copy(update={"cuts": []}).model_dump()])
    Path("foreign").mkdir()
    foreign = Cut(position=3, summary="桥长九十八米，一九一二年通车，位于北镇。")
    write_jsonl("foreign/trajectories.jsonl", (a_run(number, foreign).model_dump() for number in range(4)))
    Path("empty/trajectories.jsonl").touch()
    Path("torn/trajectories.jsonl").write_text('{"id": ')
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--output_dir", "out"])
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and complaint in message and message.count("\n") == 1
    assert not Path("out").exists()
