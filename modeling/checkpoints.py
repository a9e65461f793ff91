"""Which checkpoint to resume from, and whether weights are fit to be saved.

The Trainer writes a checkpoint file by file, `trainer_state.json` last of all and before it deletes older
ones: a checkpoint without that file, or with half of it, is one that a kill interrupted.
"""

import json
import math
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from modeling.sharding import whole


def newest_complete_checkpoint(output_dir: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    complete = [folder for folder in _checkpoints(output_dir) if _is_complete(folder)]
    return max(complete, key=_step, default=None)


def remove_torn_checkpoints(output_dir: Path) -> list[Path]:
    """Delete what a kill left half-written, so that rotation never counts it; returns what went."""
    torn = [folder for folder in _checkpoints(output_dir) if not _is_complete(folder)]
    for folder in torn:
        shutil.rmtree(folder)
    return torn


def _checkpoints(output_dir: Path) -> Iterable[Path]:
    return (folder for folder in output_dir.glob("checkpoint-*") if folder.name.split("-")[-1].isdecimal())


def _step(folder: Path) -> int:
    return int(folder.name.split("-")[-1])


def _is_complete(folder: Path) -> bool:
    state = folder / "trainer_state.json"
    try:
        return bool(json.loads(state.read_text())["global_step"] == _step(folder))
    except (OSError, ValueError, TypeError, LookupError):
        return False


def damaged(checkpoint: Path | None, error: Exception) -> str:
    """What to say of a checkpoint that was written to its end, and is broken now."""
    reason = str(error).splitlines()[0]
    return f"{checkpoint} is damaged ({reason}); remove it, and --resume goes on from the one before"


LESS_STEEP = "lower --learning_rate, or train with --dtype float32"


@contextmanager
def disk_errors(output_dir: Path) -> Iterator[None]:
    """Raises ValueError, with the way on, where the disk does not take what is saved, whoever was writing."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        checkpoint = newest_complete_checkpoint(output_dir)
        if "PytorchStreamReader" in str(error):
            raise ValueError(damaged(checkpoint, error)) from error
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):
            raise
        kept = f"{checkpoint} is whole" if checkpoint else "there is no checkpoint yet"
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{output_dir} cannot be written ({reason}); {kept}; make room, and go on with --resume"
        ) from error


def check_finite(model: nn.Module) -> None:
    """Raises ValueError naming parameters that hold NaN or infinity: such weights are never saved."""
    broken = [
        name for name, weight in model.named_parameters() if not whole(torch.isfinite(weight).all()).item()
    ]
    if broken:
        raise ValueError(
            f"{len(broken)} parameters are not finite (first: {', '.join(broken[:3])}); nothing was saved; "
            f"{LESS_STEEP}"
        )


class StopWhenNotFinite(TrainerCallback):
    """Stops at a loss or gradient that is no number, before broken weights become the newest checkpoint."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        logged = state.log_history[-1] if state.log_history else {}
        for name in ("loss", "grad_norm"):
            if not math.isfinite(value := logged.get(name, 0.0)):
                raise ValueError(
                    f"the {name} of step {state.global_step} is {value}; {args.output_dir} keeps its last "
                    f"checkpoint; {LESS_STEEP}"
                )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        model = kwargs["model"]
        assert isinstance(model, nn.Module)
        if control.should_save:
            check_finite(model)
