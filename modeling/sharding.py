"""FSDP that was asked for must shard: accelerate falls back to whole copies on a CPU, without a word."""

import os
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from modeling.progress import say


def whole(value: torch.Tensor) -> torch.Tensor:
    """The value over all shards, the same in every process; a shard's own verdict would stop only some."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def is_sharded(training: Any) -> bool:
    """Whether no process holds the whole model, as `accelerate launch` and --deepspeed say it."""
    launched = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return bool(training.deepspeed) or any(os.environ.get(name) == "true" for name in launched)


def describe_sharding(model: nn.Module) -> str:
    """What this process holds. Raises ValueError where no parameter is a shard."""
    weights = list(model.parameters())
    shards = [weight for weight in weights if isinstance(weight, DTensor)]
    if not shards:
        raise ValueError(
            "FSDP was asked for and nothing is sharded: accelerate does so on accelerators only, and with "
            "fsdp_version 2 as in configs/accelerate/fsdp2.yaml; leave FSDP out for whole copies"
        )
    held = sum((weight.to_local() if isinstance(weight, DTensor) else weight).numel() for weight in weights)
    return (
        f"FSDP: {len(shards)} of {len(weights)} tensors sharded over "
        f"{shards[0].device_mesh.size()} processes; one holds {held:,} of "
        f"{sum(weight.numel() for weight in weights):,} parameters"
    )


class CheckSharded(TrainerCallback):
    """Stops before the first step if every process holds the whole model."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        model = kwargs["model"]
        assert isinstance(model, nn.Module)
        say(describe_sharding(model))
