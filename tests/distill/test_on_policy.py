"""On-policy distillation through its real entry: configs, two steps, exact resume, refusals, prompts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from distill import on_policy
from distill.arguments import OnPolicyArguments, on_policy_problems
from modeling.chat_template import prompt_ids, thinking_switch
from modeling.loading import load_tokenizer
from modeling.preparation import Findings, Prepared
from tests.distill.tiny_runs import losses, refusal, tiny_run

Words = Callable[..., list[str]]
CONFIGS = Path(__file__).parents[2] / "configs" / "on_policy"


@pytest.fixture(scope="module")
def tiny_teacher(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wider than the student, with its tokenizer."""
    from transformers import AutoConfig, LlamaForCausalLM, set_seed

    set_seed(1)
    folder = shutil.copytree(tiny_llama, tmp_path_factory.mktemp("teacher") / "tiny_teacher")
    config = AutoConfig.from_pretrained(tiny_llama)
    config.update({"hidden_size": 48, "head_dim": 12})
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def words(tiny_llama: Path, tiny_teacher: Path, pairs_file: Path, tmp_path: Path) -> Words:
    """A shipped config in a tiny run; later words override earlier ones."""

    def make(*more: str, output_dir: Path = tmp_path / "run", config: str = "smollm2_cpu.yaml") -> list[str]:
        return [
            *tiny_run(CONFIGS / config, tiny_llama, pairs_file, output_dir),
            *("--teacher_model_name_or_path", str(tiny_teacher), "--use_vllm", "false"),
            *("--max_length", "300", "--max_completion_length", "6", *more),
        ]

    return make


@pytest.mark.parametrize("config", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_shipped_config_trains_two_steps(words: Words, config: str, tmp_path: Path) -> None:
    assert on_policy.main(words(config=config)) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["counts"]["finished"] and run["counts"]["num_steps"] == 2 and len(run["inputs"]) == 1
    assert {"train_file", "model_name_or_path", "thinking", "max_length"} <= run["config"].keys()
    assert len(losses(tmp_path / "run")) == 2
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_the_run_is_exported_like_one_of_sft(words: Words, tmp_path: Path) -> None:
    from distill import export

    assert on_policy.main(words("--use_peft", "--lora_target_modules", "q_proj", "v_proj")) == 0
    export.main(["--checkpoint", str(tmp_path / "run"), "--output_dir", str(tmp_path / "export")])
    card = json.loads((tmp_path / "export" / "condensery.json").read_text())
    assert card["thinking"] == "none" and card["budgets"]["max_length"] == 300
    assert on_policy.main(words("--model_name_or_path", str(tmp_path / "export"), "--dry_run")) == 0


def test_resumed_run_equals_an_uninterrupted_one(words: Words, pairs_file: Path, tmp_path: Path) -> None:
    """Killed in the second of two epochs, with other evaluations before the kill."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("".join(pairs_file.read_text().splitlines(keepends=True)[6:8]))
    more = [
        "--max_steps",
        "5",
        "--save_steps",
        "4",
        "--save_total_limit",
        "2",
        "--limit",
        "6",
        "--eval_file",
        str(held_out),
    ]
    assert on_policy.main(words(*more, output_dir=whole)) == 0
    often = ["--eval_strategy", "steps", "--eval_steps", "2"]
    assert on_policy.main(words(*more, *often, output_dir=broken)) == 0
    run = json.loads((broken / "run.json").read_text())
    assert run["counts"]["last_eval_loss"] > 0
    (broken / "run.json").write_text(json.dumps(run | {"counts": {}}))
    shutil.rmtree(broken / "checkpoint-5")
    assert on_policy.main([*words(*more, output_dir=broken), "--resume"]) == 0
    assert losses(broken) == losses(whole)
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_the_student_answers_what_a_server_would_feed_it(
    words: Words, pairs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill.on_policy_trainer import OnPolicyTrainer

    fed: list[list[int]] = []
    generate = OnPolicyTrainer._generate_single_turn

    def watch(self: OnPolicyTrainer, ids: list[list[int]], *more: object, **named: object) -> object:
        fed.extend(ids)
        return generate(self, ids, *more, **named)

    monkeypatch.setattr(OnPolicyTrainer, "_generate_single_turn", watch)
    argv = words("--global_batch_size", "12", "--max_steps", "1")
    assert on_policy.main(argv) == 0
    tokenizer = load_tokenizer(argv[argv.index("--model_name_or_path") + 1])
    rows = [json.loads(line) for line in pairs_file.read_text().splitlines()]
    switch = thinking_switch(tokenizer, "none")
    assert sorted(fed) == sorted(prompt_ids(tokenizer, row["prompt"], switch) for row in rows)


@pytest.mark.parametrize("thinking", ["keep", "empty", "none"])
def test_the_thinking_setting_reaches_the_prompts(
    thinking: str, qwen_tokenizer, pairs_file: Path, tmp_path: Path
) -> None:
    import trl

    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    qwen_tokenizer.chat_template = template.read_text()
    rows = [json.loads(line) | {"reasoning": "Why?"} for line in pairs_file.read_text().splitlines()]
    train_file = tmp_path / "train.jsonl"
    train_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = OnPolicyArguments(train_file, thinking=thinking)  # type: ignore[arg-type]
    prepared, findings = Prepared(qwen_tokenizer), Findings()
    on_policy.load_prompts(arguments, SimpleNamespace(max_completion_length=20), prepared, findings)
    findings.stop_if_any()
    prompts = prepared.datasets["train"]["prompt"]
    switch = thinking_switch(qwen_tokenizer, thinking)  # type: ignore[arg-type]
    assert list(prompts) == [prompt_ids(qwen_tokenizer, row["prompt"], switch) for row in rows]


def test_another_vocabulary_is_refused_before_anything_is_loaded(
    words: Words, qwen_tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qwen_tokenizer.chat_template = "{{ messages[0].content }}"
    qwen_tokenizer.save_pretrained(tmp_path / "qwen")  # without weights: nobody looks for them
    message = refusal(on_policy.main, words("--teacher_model_name_or_path", str(tmp_path / "qwen")), capsys)
    assert "another vocabulary" in message and str(tmp_path / "qwen") in message
    assert not (tmp_path / "run").exists()


def test_a_head_of_another_size_is_refused(
    words: Words, tiny_teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    padded = shutil.copytree(tiny_teacher, tmp_path / "padded")
    config = json.loads((padded / "config.json").read_text())
    (padded / "config.json").write_text(json.dumps(config | {"vocab_size": 49280}))
    assert "one of 49280" in refusal(
        on_policy.main, words("--teacher_model_name_or_path", str(padded)), capsys
    )


def test_a_teacher_without_its_weights_is_refused(
    words: Words, tiny_teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(tiny_teacher, tmp_path / "broken")
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    message = refusal(on_policy.main, words("--teacher_model_name_or_path", str(broken)), capsys)
    assert f"cannot load {broken}" in message and not (tmp_path / "run").exists()


def test_an_adapter_as_student_is_refused(
    words: Words, tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from peft import LoraConfig, get_peft_model

    from modeling.loading import load_model

    adapter = get_peft_model(load_model(str(tiny_llama)), LoraConfig(target_modules=["q_proj"]))
    adapter.peft_config["default"].base_model_name_or_path = str(tiny_llama)
    adapter.save_pretrained(tmp_path / "adapter")
    load_tokenizer(str(tiny_llama)).save_pretrained(tmp_path / "adapter")
    message = refusal(on_policy.main, words("--model_name_or_path", str(tmp_path / "adapter")), capsys)
    assert "condensery export --checkpoint" in message
    argv = words("--teacher_model_name_or_path", str(tmp_path / "adapter"), "--max_steps", "1")
    assert on_policy.main(argv) == 0


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--max_completion_length", "290"], "12 x too_long"),
        (["--max_completion_length", "0"], "max_completion_length is 0"),
        (["--temperature", "0"], "temperature is 0.0; it must be above 0"),
        (["--global_batch_size", "13"], "12 rows are fewer than --global_batch_size 13"),
        (["--global_batch_size", "0"], "global_batch_size is 0"),
        (["--gradient_accumulation_steps", "4"], "follows from --global_batch_size"),
        (["--chat_template_kwargs", '{"enable_thinking": true}'], "--thinking sets the switch"),
        (["--vllm_mode", "server"], "it needs --use_vllm"),
        (["--train_sampling_strategy", "group_by_length"], "--train_sampling_strategy"),
        (["--beta", "2"], "beta must be in"),
        (["--train_file", "nowhere.jsonl"], "no pairs file nowhere.jsonl"),
    ],
)
def test_bad_input_stops_before_anything_is_written(
    words: Words, more: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in refusal(on_policy.main, words(*more), capsys)
    assert not (tmp_path / "run").exists()


def test_fsdp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked alone: accelerate reads the variable as well, when Hugging Face's arguments are made."""
    from trl import DistillationConfig, ModelConfig

    arguments = OnPolicyArguments(Path("train.jsonl"))
    training = DistillationConfig(use_cpu=True, bf16=False)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert any(
        "zero_stage 3" in problem for problem in on_policy_problems(arguments, training, ModelConfig())
    )


def test_a_row_in_both_files_is_refused(
    words: Words, pairs_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(on_policy.main, words("--eval_file", str(pairs_file)), capsys)
    assert f"--eval_file {pairs_file} is the --train_file itself" in message


def test_dry_run_writes_nothing_and_says_which_rows_fill_no_batch(
    words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert on_policy.main(words("--dry_run", "--global_batch_size", "5")) == 0
    assert "leaves out 2 of 12 rows" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_stops_the_run(
    words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--learning_rate", "1e30", "--max_steps", "4", "--max_grad_norm", "0"]
    message = refusal(on_policy.main, words(*more), capsys)
    assert "not finite" in message or "of step" in message
    assert not (tmp_path / "run" / "model.safetensors").exists()
