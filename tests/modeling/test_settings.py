"""Settings of Hugging Face's with which a run would fail late, train nothing or write over something."""

from pathlib import Path

import pytest
from trl import ModelConfig, SFTConfig

from modeling.settings import (
    RunArguments,
    adapter_problems,
    common_problems,
    directory_problems,
    number_problems,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight_decay", -1.0), ("label_smoothing_factor", 1.0), ("max_grad_norm", -1.0),
        ("logging_steps", -1),
        ("save_steps", 0), ("save_total_limit", 0), ("learning_rate", 0.0), ("learning_rate", float("nan")),
        ("per_device_eval_batch_size", 0), ("eval_accumulation_steps", 0), ("max_steps", 0),
        ("max_length", 0),
        ("pad_to_multiple_of", 0), ("adam_epsilon", 0.0), ("adam_beta2", 1.0), ("seed", -1),
        ("lora_dropout", -1.0), ("lora_alpha", 0), ("warmup_steps", -1),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_named(name: str, value: float) -> None:
    training, model_config = SFTConfig(use_cpu=True, bf16=False), ModelConfig()
    assert not number_problems(training, model_config)
    setattr(training if hasattr(training, name) else model_config, name, value)
    [problem] = number_problems(training, model_config)
    assert problem.startswith(f"--{name} is ")


def test_a_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    file, foreign, run = tmp_path / "file", tmp_path / "foreign", tmp_path / "run"
    file.write_text("")
    for folder in (foreign, run):
        folder.mkdir()
    (foreign / "model.safetensors").write_text("")
    (run / "run.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for output_dir, complaint in (
        ("", "is missing"), ("trainer_output", "is missing"), (file, "is no folder"),
        (file / "below", "is no folder"), (tmp_path / "link", "is no folder"),
        (foreign, "holds files of no run"), (run, "already holds a run"),
    ):  # fmt: skip
        [problem] = directory_problems(str(output_dir), may_exist=False)
        assert complaint in problem
    assert not directory_problems(str(run), may_exist=True)
    assert not directory_problems(str(tmp_path / "new" / "run"), may_exist=False)


def test_settings_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    training = SFTConfig(str(tmp_path / "run"), use_cpu=True, bf16=False)
    model_config = ModelConfig("m", attn_implementation="flex_attention", lora_target_modules=["q_proj"])
    arguments = RunArguments(tmp_path / "train.jsonl")
    training.eval_strategy, training.activation_offloading = "steps", True
    problems = "\n".join(common_problems(arguments, training, model_config))
    for name in (
        "--eval_strategy",
        "--attn_implementation",
        "--activation_offloading",
        "--lora_target_modules",
    ):
        assert name in problems


def test_an_adapters_settings_without_an_adapter_are_told() -> None:
    told = adapter_problems(ModelConfig("m", lora_r=8, lora_target_modules=["q_proj"]))
    assert [line.split()[0] for line in told] == ["--lora_r", "--lora_target_modules"]
    assert not adapter_problems(ModelConfig("m", lora_r=8, use_peft=True)) + adapter_problems(
        ModelConfig("m")
    )
