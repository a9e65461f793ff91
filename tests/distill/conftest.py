"""The command line of a tiny training run, shared by the tests of SFT, export and serving."""

from collections.abc import Callable
from pathlib import Path

import pytest

CONFIGS = Path(__file__).parents[2] / "configs" / "sft"


@pytest.fixture(scope="session")
def sft_words() -> Callable[..., list[str]]:
    """A shipped config on a tiny float32 model, two steps of two pairs; later words override earlier ones."""

    def words(config: str, model: Path, pairs: Path, output_dir: Path, *more: str) -> list[str]:
        return [
            *("--config", str(CONFIGS / config), "--model_name_or_path", str(model), "--dtype", "float32"),
            *("--train_file", str(pairs), "--output_dir", str(output_dir), "--use_cpu", "--bf16", "false"),
            *("--global_batch_size", "2", "--per_device_train_batch_size", "1", "--max_steps", "2"),
            *("--learning_rate", "1e-2", "--warmup_steps", "0"),
            *("--thinking", "none", *more),  # the rows hold no reasoning
        ]

    return words


@pytest.fixture(scope="session")
def lora_on_experts() -> list[str]:
    return [
        *("--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--lora_dropout", "0"),
        *("--lora_target_parameters", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    ]
