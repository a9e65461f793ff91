"""What the tests of training runs share: the words of a tiny run, its losses, and what a refusal says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


def tiny_run(config: Path, model: Path, pairs: Path, output_dir: Path) -> list[str]:
    """A shipped config on a tiny float32 model on the CPU, two steps of two pairs."""
    return [
        *("--config", str(config), "--model_name_or_path", str(model), "--dtype", "float32"),
        *("--train_file", str(pairs), "--output_dir", str(output_dir), "--use_cpu", "--bf16", "false"),
        *("--global_batch_size", "2", "--per_device_train_batch_size", "1", "--max_steps", "2"),
        *("--learning_rate", "1e-2", "--warmup_steps", "0"),
        *("--thinking", "none"),  # the rows hold no reasoning
    ]


def losses(output_dir: Path) -> list[float]:
    history = json.loads((output_dir / "log_history.json").read_text())
    return [entry["loss"] for entry in history if "loss" in entry]


def refusal(main: Callable[[list[str]], int], argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says when it refuses its arguments."""
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    return capsys.readouterr().err
