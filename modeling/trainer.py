"""What every trainer of TRL's gets from us: checks that stop a run which would train nothing or diverge, and
lines in a log in the place of a dict."""

import os
from typing import Any

import torch
from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from modeling.adapters import CheckTargetsLearn, check_saved_modules, check_targets_trainable
from modeling.checkpoints import StopWhenNotFinite, check_finite
from modeling.progress import ProgressLines, say
from modeling.sharding import CheckSharded
from modeling.trainable import describe_trainable


def watch(trainer: Any, model_config: Any, *callbacks: TrainerCallback) -> Any:
    """The trainer with our callbacks and `callbacks`. ValueError for LoRA targets that match nothing."""
    model = trainer.model
    targets: list[str] = []
    if model_config.use_peft:
        # The name, not this machine's folder: the adapter may be merged elsewhere.
        adapter = model.peft_config["default"]
        adapter.base_model_name_or_path = model_config.model_name_or_path
        adapter.revision = model_config.model_revision
        targets = model_config.lora_target_parameters or []
        check_saved_modules(model, model_config.lora_modules_to_save or [])
    check_targets_trainable(model, targets)
    check_start(model, model_config.model_name_or_path)
    say(describe_trainable(model))
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        trainer.add_callback(CheckSharded())
    for callback in (StopWhenNotFinite(), CheckTargetsLearn(targets), ProgressLines(), *callbacks):
        trainer.add_callback(callback)
    trainer.create_model_card = lambda *args, **options: None  # TRL's names no base; run.json tells all
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    if trainer.args.use_cpu:
        warn_of_idle_cores(trainer.args.world_size)
    return trainer


def check_start(model: Any, name: str) -> None:
    """Raises ValueError for weights that are broken before the first step."""
    try:
        check_finite(model)
    except ValueError as error:
        reason = str(error).partition(";")[0]
        raise ValueError(f"{name} cannot be trained: {reason}") from error


def warn_of_idle_cores(num_processes: int) -> None:
    """`accelerate launch` sets OMP_NUM_THREADS=1 where it is not told otherwise, which nobody notices."""
    num_cores = os.cpu_count() or 1
    if torch.get_num_threads() == 1 and num_processes < num_cores:
        say(f"one thread per process on {num_cores} cores; for all of them start it with "
            f"OMP_NUM_THREADS={num_cores // num_processes}")  # fmt: skip
