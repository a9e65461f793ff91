"""`condensery evaluate` as a user runs it, with a tiny model."""

import json
import shutil

import pytest

from condensery.files.jsonl import write_jsonl
from condensery.prompt import load_template
from data_synthesis.generate_web import main as web
from data_synthesis.record import main as record
from evaluation.compare import main

PAIR = {
    "prompt": [{"role": "user", "content": "Summarize."}],
    "completion": [{"role": "assistant", "content": "<summary>\nHarrow Bridge [p1]\n</summary>"}],
    "language": "en",
    "prompt_template": "compact_v1",
    "author": "oracle",
    **dict.fromkeys(["prompt_tokens", "completion_tokens", "history_tokens"], 9),
    **dict.fromkeys(["num_statements", "num_unsupported"], 0),
}


@pytest.fixture
def held_out(tmp_path):
    """Compactions of real rollouts over a small web, and pairs with the oracle's answers."""
    assert web(["--output_dir", f"{tmp_path}/web", "--num_questions", "4", "--num_entities", "60"]) == 0
    options = ["--window_tokens", "700", "--reserve_tokens", "0", "--prompt_template", "compact_v1"]
    assert record(["--questions", f"{tmp_path}/web", "--output_dir", f"{tmp_path}/record", *options]) == 0
    rows = [json.loads(line) for line in (tmp_path / "record" / "compactions.jsonl").read_text().splitlines()]
    assert rows
    write_jsonl(
        tmp_path / "pairs.jsonl",
        (
            PAIR
            | {name: row[name] for name in ("trajectory_id", "question_id", "index")}
            | {"id": f"pair-{row['id']}", "compaction_id": row["id"]}
            for row in rows
        ),
    )
    return tmp_path


def test_report_has_every_model_and_its_figures(held_out, tiny_llama, capsys):
    arguments = [
        *("--compactions", f"en={held_out}/record/compactions.jsonl", "--pairs", f"{held_out}/pairs.jsonl"),
        *("--base", str(tiny_llama), "--trained", str(tiny_llama), "--max_new_tokens", "8"),
        *("--output_dir", f"{held_out}/evaluation", "--limit", "2"),
    ]
    assert main(arguments) == 0
    report = json.loads((held_out / "evaluation" / "report.json").read_text())
    models = {"base", "base_lenient", "trained", "teacher", "keep_newest", "observation_masking"}
    assert set(report["models"]) == models
    for row in report["models"].values():
        assert {
            "must_keep_recall",
            "must_keep_recall_ci",
            "distractor_facts",
            "unsupported",
            "tokens",
        } <= set(row)
        assert set(row["slices"]) == {"en"}
    assert sum(report["models"]["base"]["failures"].values()) == 2  # a random model writes no summary
    assert report["models"]["keep_newest"]["must_keep_recall"] is not None
    assert (held_out / "evaluation" / "recall.png").stat().st_size > 1000
    assert "observation masking" in (held_out / "evaluation" / "report.md").read_text()
    assert "trained" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and "already holds a run" in capsys.readouterr().err


def test_a_killed_evaluation_goes_on_and_asks_nothing_twice(held_out, tiny_llama, monkeypatch, capsys):
    arguments = [
        *("--compactions", f"{held_out}/record/compactions.jsonl", "--base", str(tiny_llama), "--limit", "3"),
        *("--output_dir", f"{held_out}/evaluation", "--max_new_tokens", "8", "--batch_size", "1"),
    ]
    assert main(arguments) == 0
    directory = held_out / "evaluation"
    report, lines = (directory / "report.md").read_text(), (directory / "generated.jsonl").read_bytes()
    first, rest = lines.split(b"\n", 1)
    (directory / "generated.jsonl").write_bytes(first + b"\n" + rest[:40])
    assert main([*arguments, "--resume"]) == 0
    assert (directory / "generated.jsonl").read_bytes() == lines
    assert (directory / "report.md").read_text() == report
    monkeypatch.setattr("modeling.loading.load_model_and_tokenizer", lambda *_: pytest.fail("asked again"))
    assert main([*arguments, "--resume"]) == 0
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--resume", "--max_new_tokens", "9"])
    assert stop.value.code == 2 and "differs in max_new_tokens" in capsys.readouterr().err
    assert main([*arguments, "--resume", "--seed", "5", "--batch_size", "3"]) == 0, (
        "no answer depends on them"
    )
    (directory / "generated.jsonl").write_text('{"model": "base"}\n')
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--resume"])
    assert (
        stop.value.code == 2 and "generated.jsonl:1: no generated: compaction_id" in capsys.readouterr().err
    )


def test_answers_to_another_prompt_or_of_another_model_are_not_kept(held_out, tiny_llama, tmp_path, capsys):
    template, folder = tmp_path / "mine_v1.jinja", shutil.copytree(tiny_llama, tmp_path / "model")
    template.write_text("{{ task }} {{ history }}")
    arguments = [
        *("--compactions", f"{held_out}/record/compactions.jsonl", "--base", str(folder), "--limit", "1"),
        *(
            "--output_dir",
            f"{held_out}/evaluation",
            "--max_new_tokens",
            "4",
            "--prompt_template",
            str(template),
        ),
    ]
    assert main(arguments) == 0
    load_template.cache_clear()  # as in another process
    for file, complaint in ((template, "mine_v1.jinja"), (folder / "config.json", "config.json")):
        before = file.read_text()
        file.write_text(f"{before}\n")
        with pytest.raises(SystemExit) as stop:
            main([*arguments, "--resume"])
        assert stop.value.code == 2 and complaint in capsys.readouterr().err
        file.write_text(before)
    assert main([*arguments, "--resume"]) == 0


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        ("{", "not JSON"),
        ("{}", "no list of logged steps"),
        ('[{"loss": 1}]', "step"),
        ('[{"step": 1, "loss": "low"}]', "loss"),
        ("[5]", "5"),
        (None, "No such file"),
    ],
)
def test_a_log_history_of_any_shape_is_looked_at_first(held_out, history, complaint, capsys):
    path = held_out / "log_history.json"
    if history is not None:
        path.write_text(history)
    options = ["--base", "b", "--output_dir", f"{held_out}/o", "--log_history", str(path)]
    with pytest.raises(SystemExit) as stop:
        main(["--compactions", f"{held_out}/record/compactions.jsonl", *options])
    assert stop.value.code == 2 and complaint in capsys.readouterr().err


def test_no_model_is_asked_while_the_other_is_broken(held_out, tiny_llama, tmp_path, capsys):
    broken = shutil.copytree(tiny_llama, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes((broken / "model.safetensors").read_bytes()[:-9])
    options = ["--base", str(tiny_llama), "--trained", str(broken), "--output_dir", f"{held_out}/o"]
    with pytest.raises(SystemExit) as stop:
        main(["--compactions", f"{held_out}/record/compactions.jsonl", *options])
    assert stop.value.code == 2 and "model.safetensors is damaged" in capsys.readouterr().err
    assert not (held_out / "o").exists()


def test_rows_count_once_and_pairs_cover_all_of_them(held_out, capsys):
    compactions, pairs = held_out / "record" / "compactions.jsonl", held_out / "pairs.jsonl"
    lines = pairs.read_text().splitlines(keepends=True)
    assert len(lines) > 1
    pairs.write_text("".join(lines[1:]))
    twice = ["--compactions", f"a={compactions}", f"b={compactions}"]
    for words, complaint in (
        (twice, "more than once"),
        (
            ["--compactions", str(compactions), "--pairs", str(pairs)],
            f"1 of {len(lines)} compactions have no pair",
        ),
    ):
        with pytest.raises(SystemExit) as stop:
            main([*words, "--base", "b", "--output_dir", f"{held_out}/o", "--dry_run"])
        assert stop.value.code == 2 and complaint in capsys.readouterr().err


def test_a_dry_run_writes_nothing(held_out, capsys):
    compactions = f"{held_out}/record/compactions.jsonl"
    options = ["--limit", "2", "--output_dir", f"{held_out}/o", "--dry_run"]
    assert main(["--compactions", compactions, "--base", "b", "--trained", "t", *options]) == 0
    assert "would ask b and t for 2 summaries each" in capsys.readouterr().out
    assert not (held_out / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compactions", "nowhere.jsonl", "--base", "x", "--output_dir", "o"], "no file nowhere.jsonl"),
        (["--compactions", __file__, "--output_dir", "o"], "nothing to compare"),
        (["--compactions", __file__, "--base", "x", "--output_dir", "o"], "not JSON"),
        (["--compactions", __file__, "--base", "x", "--output_dir", "o", "--batch_size", "0"], "at least 1"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("base", "pairs", "message"),
    [
        ("/nowhere", "pairs.jsonl", "no model folder /nowhere"),
        ("b", "record/run.json", "run.json:1: not JSON"),
    ],
)
def test_what_cannot_be_compared_is_found_before_anything_is_written(held_out, base, pairs, message, capsys):
    compactions = f"{held_out}/record/compactions.jsonl"
    options = ["--pairs", f"{held_out}/{pairs}", "--output_dir", f"{held_out}/o"]
    with pytest.raises(SystemExit) as stop:
        main(["--compactions", compactions, "--base", base, *options])
    assert stop.value.code == 2 and message in capsys.readouterr().err
    assert not (held_out / "o").exists()


def test_an_export_is_asked_with_the_template_it_was_trained_on(held_out, capsys):
    export = held_out / "export"
    export.mkdir()
    arguments = ["--compactions", f"{held_out}/record/compactions.jsonl", "--trained", str(export)]
    arguments += ["--output_dir", f"{held_out}/o", "--dry_run"]

    def trained_on(name, text):
        card = {"prompt_template": {"name": name, "text": text}}
        (export / "condensery.json").write_text(json.dumps(card))

    trained_on(*load_template("resum_v1"))
    assert main(arguments) == 0 and "warning" not in capsys.readouterr().err
    assert main([*arguments, "--prompt_template", "full_v1"]) == 0
    assert "was trained on resum_v1, not on full_v1" in capsys.readouterr().err
    trained_on("ours_v3", "{{ task }} {{ history }}")
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and "give its file with --prompt_template" in capsys.readouterr().err
    (export / "condensery.json").write_text("[]")
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and "condensery.json is damaged" in capsys.readouterr().err
