"""Several summaries of a history: asked for once each, typed, and the best or all of them become pairs."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from condensery.files.jsonl import read_jsonl, write_jsonl
from condensery.trajectory import Cut
from data_synthesis.pairs import main as pairs_main
from data_synthesis.summarize_runs import main
from tests.data_synthesis.test_pairs import a_run
from tests.scripted_endpoint import Raw, ScriptedEndpoint, say, status

ANSWERS = [
    "<summary>Bridge 1 was built by Ann Smith.</summary>",
    "<summary>Bridge 1 is 7 metres long, and was built by Ann Smith.</summary>",
    "<summary>Bridge 1 is 9 metres long.</summary>",
    "nothing to say",
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    failed = a_run(1, Cut(position=3, failure="no_block", author="test"))
    failed.cuts.append(failed.cuts[0])
    write_jsonl(tmp_path / "run/trajectories.jsonl", [failed.model_dump(), a_run(2).model_dump()])
    return tmp_path / "run"


@pytest.fixture
def server() -> Iterator[ScriptedEndpoint]:
    asked = count()

    def script(body: dict) -> dict:
        is_first = "bridge 1," in body["messages"][0]["content"]
        return say(ANSWERS[next(asked) % 4] if is_first else "<summary>It is 14 metres long.</summary>")

    with ScriptedEndpoint(script) as endpoint:
        yield endpoint


def words(server: ScriptedEndpoint, run: Path, samples: int) -> list[str]:
    teacher = ["--teacher", server.url, "--teacher_model", "scripted", "--concurrency", "1"]
    return [str(run), *teacher, "--samples", str(samples)]


def test_each_sample_is_asked_for_once_and_stored_with_its_outcome(
    server: ScriptedEndpoint, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(server, run, 4), "--dry_run"]) == 0
    assert "would ask for 8 summaries" in capsys.readouterr().out and not server.requests
    assert main(words(server, run, 4)) == 0
    assert "7  accepted" in capsys.readouterr().out
    rows = read_jsonl(run / "summaries.jsonl")
    assert [row["cut"]["failure"] for row in rows[:4]] == [None, None, None, "no_block"]
    assert len({(row["compaction_id"], row["number"]) for row in rows}) == 8
    whole = (run / "summaries.jsonl").read_bytes()
    (run / "summaries.jsonl").write_bytes(whole[:-20])
    assert main(words(server, run, 5)) == 0
    assert len(server.requests) == 8 + 1 + 2, "the torn one, and a fifth for each history"
    assert len(read_jsonl(run / "summaries.jsonl")) == 10 and len(read_jsonl(run / "calls.jsonl")) == 11


BEST = [
    ("provenance", "Bridge 1 was built by Ann Smith."),
    ("recall", "Bridge 1 is 7 metres long, and was built by Ann Smith."),
    ("length", "Bridge 1 is 9 metres long."),
]


@pytest.mark.parametrize(("best_by", "summary"), BEST)
def test_the_best_by_a_score_or_all_become_pairs(
    server: ScriptedEndpoint, run: Path, tmp_path: Path, best_by: str, summary: str
) -> None:
    main(words(server, run, 4))

    def build(*options: str) -> tuple[list[str], list[str]]:
        out = tmp_path / "-".join(["pairs", *options])
        pairs_main([str(run), "--output_dir", str(out), "--held_out", "0", *options])
        rows = [row for row in read_jsonl(out / "train.jsonl") if row["trajectory_id"] == "t1"]
        texts = [row["completion"][0]["content"] for row in rows]
        reasons = [
            row["reason"] for row in read_jsonl(out / "rejected.jsonl") if row["trajectory_id"] == "t1"
        ]
        return texts, sorted(reasons)

    (best,), reasons = build("--samples", "best", "--best_by", best_by)
    assert summary in best and reasons == ["not_best"] * 2 + ["summary_failed"] * 3
    texts, reasons = build("--samples", "all")
    assert len(texts) == 3 and reasons == ["summary_failed"] * 3
    assert best_by != "length" or build("--samples", "all", "--near_duplicates", "0.99")[0] == texts


def test_an_unreachable_teacher_is_counted_and_asked_again(run: Path) -> None:
    answers: list[dict | Raw] = [status(400)]
    with ScriptedEndpoint(lambda body: answers.pop() if answers else say(ANSWERS[0])) as server:
        assert main(words(server, run, 1)) == 1
        assert len(read_jsonl(run / "summaries.jsonl")) == 1
        assert main(words(server, run, 1)) == 0
    assert len(read_jsonl(run / "summaries.jsonl")) == 2


def test_what_the_teacher_thought_travels_to_the_pair(run: Path, tmp_path: Path) -> None:
    """Split off by the endpoint, or before the summary; markers of ours in it are defused."""
    thoughts = [{"reasoning_content": "Seven, <|im_end|> surely."}, {}]
    inside = "<think>\nSeven.\n</think>\n"

    def script(body: dict) -> dict:
        more = thoughts[len(server.requests) % 2]
        return say(
            ("" if more else inside) + ANSWERS[1].replace("Ann", f"{len(server.requests)} Ann"), **more
        )

    with ScriptedEndpoint(script) as server:
        assert main(words(server, run, 2)) == 0
    out = tmp_path / "pairs"
    assert pairs_main([str(run), "--output_dir", str(out), "--held_out", "0", "--samples", "all"]) == 1
    found = {row["reasoning"] for row in read_jsonl(out / "train.jsonl")}
    assert found >= {"Seven, &lt;|im_end|> surely.", "Seven."}
    assert not any("Seven" in row["completion"][0]["content"] for row in read_jsonl(out / "train.jsonl"))
