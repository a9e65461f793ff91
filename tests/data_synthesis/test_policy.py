"""Which pairs are kept: each rule has a row that it drops, with its reason, and one that it keeps."""

import json
from pathlib import Path

import pytest

from condensery.files.jsonl import read_jsonl, write_jsonl
from condensery.trajectory import Cut, Trajectory
from condensery.verdict import Verdict
from data_synthesis.pairs import main
from data_synthesis.policy import contaminated_questions
from tests.data_synthesis.test_pairs import a_run, build


def judged(directory: Path, runs: list[Trajectory], verdicts: list[bool | None]) -> None:
    directory.mkdir(exist_ok=True)
    write_jsonl(directory / "trajectories.jsonl", (run.model_dump() for run in runs))
    rows = [Verdict(trajectory_id=run.id, verdict=given, judge="m") for run, given in zip(runs, verdicts)]
    write_jsonl(directory / "verdicts.jsonl", (row.model_dump() for row in rows))


def outcome(out: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """(trajectories of the kept pairs, (trajectory, reason) of the dropped ones)."""
    kept = [row["trajectory_id"] for row in read_jsonl(out / "train.jsonl")]
    return kept, [(row["trajectory_id"], row["reason"]) for row in read_jsonl(out / "rejected.jsonl")]


@pytest.mark.parametrize(
    ("verdict", "kept", "dropped"),
    [
        ("any", ["t0", "t1", "t2"], []),
        ("right", ["t0"], [("t1", "verdict"), ("t2", "verdict")]),
        ("not_wrong", ["t0", "t2"], [("t1", "verdict")]),
    ],
)
def test_the_verdict_on_the_rollout(
    tmp_path: Path, verdict: str, kept: list[str], dropped: list[tuple[str, str]]
) -> None:
    runs = [a_run(number) for number in range(3)]
    judged(tmp_path / "run", runs, [True, False, None])
    status, out = build(tmp_path, runs, "--held_out", "0", "--verdict", verdict)
    assert status == int(bool(dropped)) and outcome(out) == (kept, dropped)


def test_a_verdict_in_the_log_counts_where_nobody_judged(tmp_path: Path) -> None:
    runs = [a_run(0), a_run(1).model_copy(update={"verdict": True})]
    _, out = build(tmp_path, runs, "--held_out", "0", "--verdict", "right")
    assert outcome(out) == (["t1"], [("t0", "verdict")])


LONG = Cut(position=3, summary="Bridge 1 is 7 metres long, and was built by Ann Smith. " * 5, author="test")
INVENTED = Cut(
    position=3, summary="It cost 99,000 pounds, says [/etc/bridge.txt] and “the old ledger”.", author="t"
)
RULES = [
    (["--min_gain", "3"], LONG, "low_gain"),
    (["--languages", "zh", "en"], None, None),
    (["--languages", "de"], None, "language"),
    (["--max_unsupported", "0"], INVENTED, "unsupported"),
]


@pytest.mark.parametrize(("words", "cut", "reason"), RULES)
def test_each_rule_drops_with_its_own_reason(
    tmp_path: Path, words: list[str], cut: Cut | None, reason: str | None
) -> None:
    other = a_run(2, language="de") if reason == "language" else a_run(2)
    _, out = build(tmp_path, [other, a_run(1, cut)], "--held_out", "0", *words)
    kept = ["t2"] if reason else ["t2", "t1"]
    assert outcome(out) == (kept, [("t1", reason)] if reason else [])


def test_the_first_of_near_duplicates_stays(tmp_path: Path) -> None:
    same = a_run(1).model_copy(update={"id": "t1-again"})
    same.messages[-2].content += " It is grey."
    _, out = build(tmp_path, [a_run(1), same, a_run(2)], "--held_out", "0", "--near_duplicates", "0.8")
    assert outcome(out) == (["t1", "t2"], [("t1-again", "near_duplicate")])


def test_of_two_summaries_of_one_history_one_may_be_dropped(tmp_path: Path) -> None:
    again = a_run(1)
    again.cuts[0] = again.cuts[0].model_copy(update={"summary": f"{again.cuts[0].summary} It stands."})
    _, out = build(tmp_path, [a_run(1), again], "--held_out", "0", "--near_duplicates", "0.8")
    assert outcome(out) == (["t1"], [("t1", "near_duplicate")])


def test_a_missing_verdict_takes_none_away(tmp_path: Path) -> None:
    judged(tmp_path / "run", [a_run(0)], [True])
    with open(tmp_path / "run" / "verdicts.jsonl", "a") as file:
        file.write(Verdict(trajectory_id="t0", verdict=None, judge="other").model_dump_json() + "\n")
    _, out = build(tmp_path, [a_run(0)], "--held_out", "0", "--verdict", "right")
    assert outcome(out) == (["t0"], [])


def test_questions_of_evaluation_sets_are_dropped_with_their_place(tmp_path: Path) -> None:
    evaluation = tmp_path / "bench.jsonl"
    rows = [{"question": "Who built the tower?"}, {"question": "How long is Bridge 1 exactly"}]
    write_jsonl(evaluation, rows)
    words = ["--held_out", "0", "--contamination", str(evaluation)]
    _, out = build(tmp_path, [a_run(1), a_run(2)], *words)
    assert outcome(out) == (["t2"], [("t1", "contaminated")])
    assert f"{evaluation}:2" in (out / "rejected.jsonl").read_text()


def test_thirteen_words_in_a_row_are_contamination(tmp_path: Path) -> None:
    shared = "the year in which the mayor of the town beside the river first opened"
    assert len(shared.split()) == 14
    tasks = {"a": f"Tell me {shared} the grand museum of art.", "b": "Tell me the year of the museum."}
    constrained = {"c": "How long is it?\n- only sources of the last ten years\n- in metres"}
    write_jsonl(tmp_path / "bench.jsonl", [{"question": "How long is it?"}])
    assert list(contaminated_questions(constrained, [tmp_path / "bench.jsonl"])) == ["c"]
    for text, found in (shared, ["a"]), (" ".join(shared.split()[:12]), []):
        write_jsonl(tmp_path / "bench.jsonl", [{"question": f"Q: {text} its doors?"}])
        assert list(contaminated_questions(tasks, [tmp_path / "bench.jsonl"])) == found


def test_hard_is_what_fails_with_a_summary_and_succeeds_with_full_history(tmp_path: Path) -> None:
    runs = [a_run(number) for number in range(4)]
    full = [run.model_copy(update={"id": f"{run.id}-full", "cuts": [], "paradigm": "react"}) for run in runs]
    judged(tmp_path / "run", runs, [True, False, False, None])
    judged(tmp_path / "full", full, [True, True, False, True])
    words = ["--held_out", "0", "--contrast", str(tmp_path / "full")]
    _, out = build(tmp_path, runs, *words)
    assert [row["hard"] for row in read_jsonl(out / "train.jsonl")] == [False, True, False, False]
    _, out = build(tmp_path, runs, *words, "--hard_only", "--output_dir", str(tmp_path / "hard"))
    assert outcome(tmp_path / "hard")[0] == ["t1"]


def test_contrast_is_with_a_run_that_saw_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged(tmp_path / "full", [a_run(0)], [True])
    with pytest.raises(SystemExit):
        build(tmp_path, [a_run(0)], "--held_out", "0", "--contrast", str(tmp_path / "full"))
    assert "full is no run with full history: t0 was cut" in capsys.readouterr().err


def test_the_card_tells_the_way_from_rollouts_to_pairs_and_what_they_cost(tmp_path: Path) -> None:
    failed = a_run(2, Cut(position=3, failure="no_block", author="test"))
    runs = [a_run(0), a_run(1), failed, a_run(3).model_copy(update={"cuts": []})]
    (tmp_path / "run").mkdir()
    calls = [
        {"kind": "explorer", "prompt_tokens": 1000, "cached_tokens": 600, "completion_tokens": 100},
        {"kind": "explorer", "prompt_tokens": None, "cached_tokens": None, "completion_tokens": None},
        {"kind": "summary", "prompt_tokens": 500, "completion_tokens": 50},
        {"kind": "tool", "result": "x"},
    ]
    write_jsonl(tmp_path / "run/calls.jsonl", calls)
    prices = ["--price_prompt", "2", "--price_completion", "10", "--price_cached", "0.5"]
    _, out = build(tmp_path, runs, "--held_out", "0", *prices)
    card = json.loads((out / "data_card.json").read_text())
    assert card["funnel"] == {"rollouts": 4, "with_compaction": 3, "summaries": 3, "accepted": 2}
    assert card["summary_failures"] == {"no_block": 1}
    assert card["costs"]["explorer"] == {
        **{"calls": 2, "uncounted": 1, "prompt_tokens": 1000, "cached_tokens": 600, "completion_tokens": 100}
    }
    assert card["money"]["explorer"] == {"full": 0.003, "with_cache": 0.0021}
    text = (out / "data_card.md").read_text()
    assert "4 rollouts -> 3 with compaction -> 3 summaries -> 2 accepted -> 2 pairs" in text
    assert "2 (1 without a count), 1000 tokens read (600 from a cache), 100 written; 0.003" in text


def test_other_formats_hold_the_same_rows(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    words = ["--held_out", "2", "--formats", "jsonl", "parquet", "datasets"]
    _, out = build(tmp_path, [a_run(number) for number in range(5)], *words)
    for name in ("train", "held_out"):
        rows = read_jsonl(out / f"{name}.jsonl")
        assert datasets.load_from_disk(str(out / "datasets" / name)).to_list() == rows
        cache = str(tmp_path / "cache")
        assert datasets.Dataset.from_parquet(str(out / f"{name}.parquet"), cache_dir=cache).to_list() == rows


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--near_duplicates", "0"], "near_duplicates is 0"),
        (["--min_gain", "0.5"], "min_gain is 0.5"),
        (["--hard_only"], "needs --contrast"),
        (["--price_prompt", "1"], "give both"),
        (["--contrast", "nowhere"], "no nowhere"),
        (["--contamination", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--contamination", "{run}"], "rows.jsonl:2: no `question`"),
        (["--contamination", "{empty}"], "holds no row with a `question`"),
        (["--contrast", "{directory}"], "is not judged"),
    ],
)
def test_wrong_rules_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    plain = a_run(0)
    (tmp_path / "run").mkdir()
    write_jsonl(tmp_path / "run/trajectories.jsonl", [plain.model_dump()])
    write_jsonl(tmp_path / "rows.jsonl", [{"question": "Who?"}, {"answer": "x"}])
    write_jsonl(tmp_path / "empty.jsonl", [])
    places = {
        "{empty}": str(tmp_path / "empty.jsonl"),
        "{run}": str(tmp_path / "rows.jsonl"),
        "{directory}": str(tmp_path / "run"),
    }
    given = [places.get(word, word) for word in words]
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path / "run"), "--output_dir", str(tmp_path / "out"), "--held_out", "0", *given])
    assert caught.value.code == 2 and complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
