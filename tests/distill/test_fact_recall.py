"""Recall of the student's own summaries, logged while it trains, without a trace in what it learns."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from safetensors.torch import load_file

from condensery.summary import wrap_summary
from distill import sft
from distill.fact_recall import score
from modeling.chat_template import render_pair
from modeling.generation import Generation
from tests.distill.tiny_runs import refusal

Words = Callable[..., list[str]]


@pytest.fixture
def split_files(pairs_file: Path, tmp_path: Path) -> list[str]:
    lines = pairs_file.read_text().splitlines(keepends=True)
    train, held_out = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
    train.write_text("".join(lines[:8]))
    held_out.write_text("".join(lines[8:]))
    return ["--train_file", str(train), "--eval_file", str(held_out)]


def history_of(output_dir: Path) -> list[dict]:
    return json.loads((output_dir / "log_history.json").read_text())


@pytest.mark.parametrize("lora", [False, True])
def test_recall_is_logged_at_each_evaluation_and_changes_nothing(
    lora: bool,
    sft_words: Words,
    tiny_qwen3_moe: Path,
    pairs_file: Path,
    split_files: list[str],
    tmp_path: Path,
) -> None:
    """With dropout: training draws random numbers at every step."""
    more = ["--eval_strategy", "steps", "--eval_steps", "1", "--max_steps", "3", *split_files]
    more += (
        ["--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--lora_dropout", "0.5"] if lora else []
    )
    histories = {}
    for rows in (0, 3):
        output_dir = tmp_path / f"run-{rows}"
        words = sft_words("qwen3_30b_a3b.yaml", tiny_qwen3_moe, pairs_file, output_dir, *more)
        assert sft.main([*words, "--eval_generate", str(rows)]) == 0
        histories[rows] = history_of(output_dir)
    logged = [entry for entry in histories[3] if "eval_fact_recall" in entry]
    assert [entry["step"] for entry in logged] == [1, 2, 3]
    assert all(entry["eval_fact_recall"] == entry["eval_parsed"] == 0 for entry in logged)  # a random model
    learned = ("loss", "grad_norm", "mean_token_accuracy", "eval_loss")
    with_, without = (
        [{key: entry[key] for key in learned if key in entry} for entry in histories[rows]] for rows in (3, 0)
    )
    assert [entry for entry in with_ if entry] == [entry for entry in without if entry]
    name = "adapter_model.safetensors" if lora else "model.safetensors"
    weights = [load_file(tmp_path / run / name) for run in ("run-0", "run-3")]
    assert all((weights[0][key] == weights[1][key]).all() for key in weights[0])


@pytest.mark.slow
def test_a_student_that_learned_its_rows_recalls_them(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path
) -> None:
    """The held-out row has the words of the rows trained on."""
    row = json.loads(pairs_file.read_text().splitlines()[0])
    train, held_out = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
    train.write_text(
        "".join(json.dumps(row | {"id": f"{n}", "question_id": f"{n}"}) + "\n" for n in range(4))
    )
    held_out.write_text(json.dumps(row | {"id": "held", "question_id": "held"}) + "\n")
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--max_steps", "80")
    files = ["--train_file", str(train), "--eval_file", str(held_out), "--eval_generate", "1"]
    assert sft.main([*words, *files]) == 0
    assert history_of(tmp_path / "run")[-1]["eval_fact_recall"] == 1.0


def test_values_are_counted_in_accepted_summaries_alone(smollm2_tokenizer) -> None:
    said = "Bridge 7 is 1,921 m long. It was built by Ann Lee on 3 May 1990."
    prompt = [{"role": "user", "content": "Summarize."}]
    completion = [{"role": "assistant", "content": wrap_summary(said)}]
    pair = render_pair(smollm2_tokenizer, prompt, completion)
    row = {"input_ids": pair.input_ids, "labels": pair.labels}
    kept, num_values, parsed = score(smollm2_tokenizer, row, Generation(wrap_summary(said), [], "stop"))
    assert kept == num_values == 4 and parsed  # 7, 1921, 1990-05-03, Ann Lee
    other = Generation(wrap_summary("Ann Lee built it; 1921 metres."), [], "stop")
    assert score(smollm2_tokenizer, row, other) == (2, 4, True)
    assert score(smollm2_tokenizer, row, Generation(said, [], "stop")) == (0, 4, False)
    assert score(smollm2_tokenizer, row, Generation(wrap_summary(said), [], "length")) == (0, 4, False)


@pytest.mark.parametrize("launched", ["", "ACCELERATE_USE_FSDP"])
def test_where_it_cannot_be_had_is_said_beforehand(
    launched: str,
    sft_words: Words,
    tiny_llama: Path,
    pairs_file: Path,
    split_files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--eval_generate", "2")
    if launched:
        monkeypatch.setenv(launched, "true")
    with pytest.raises(SystemExit) as stopped:
        sft.main([*words, *(split_files if launched else [])])
    complaint = "where weights are sharded" if launched else "--eval_generate needs --eval_file"
    assert stopped.value.code == 2 and complaint in capsys.readouterr().err


@pytest.mark.parametrize("service", ["tensorboard", "wandb", "trackio", "swanlab", "mlflow"])
def test_figures_are_reported_or_the_missing_package_named(
    service: str,
    sft_words: Words,
    tiny_llama: Path,
    pairs_file: Path,
    split_files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--report_to", service)
    words += ["--max_steps", "1", "--eval_generate", "1", *split_files]
    if find_spec(service) is None:
        with pytest.raises(SystemExit) as stopped:
            sft.main(words)
        complaint = f"--report_to {service}: pip install {service}, or --report_to none"
        assert stopped.value.code == 2 and capsys.readouterr().err.splitlines()[-1] == complaint
        assert not (tmp_path / "run").exists()
    elif service == "tensorboard":
        assert sft.main(words) == 0
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        [file] = (tmp_path / "run").rglob("events.out.tfevents.*")
        events = EventAccumulator(str(file)).Reload()
        assert {"train/loss", "eval/loss", "eval/fact_recall", "eval/parsed"} <= set(events.Tags()["scalars"])
    else:
        pytest.skip(f"{service} is installed, and reports over a network")


def test_an_unknown_service_is_named(
    sft_words: Words, tiny_llama: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = sft_words("smollm2_cpu.yaml", tiny_llama, pairs_file, tmp_path / "run", "--report_to", "wandbb")
    assert "--report_to wandbb: unknown" in refusal(sft.main, words, capsys)
