"""The command line of a tiny training run, shared by the tests of SFT, export and serving."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.distill.tiny_runs import tiny_run

CONFIGS = Path(__file__).parents[2] / "configs" / "sft"


@pytest.fixture(scope="session")
def sft_words() -> Callable[..., list[str]]:
    """A shipped config in a tiny run; later words override earlier ones."""

    def words(config: str, model: Path, pairs: Path, output_dir: Path, *more: str) -> list[str]:
        return [*tiny_run(CONFIGS / config, model, pairs, output_dir), *more]

    return words


@pytest.fixture(scope="session")
def lora_on_experts() -> list[str]:
    return [
        *("--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--lora_dropout", "0"),
        *("--lora_target_parameters", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    ]
