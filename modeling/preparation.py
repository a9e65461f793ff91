"""What can be known to be wrong with a training run before it starts, collected and said at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from transformers import get_scheduler

from modeling.batches import BatchPlan, plan_batches
from modeling.disk import check_disk
from modeling.loading import load_config
from modeling.memory import check_memory
from modeling.memory_plan import MemoryPlan, num_bytes
from modeling.precision import computed_dtype, without_slow_bf16

Result = TypeVar("Result")


@dataclass
class Prepared:
    """A run whose settings and rows are fit to train: rows by split, and the plans to print.

    `instances` are what a reward looks at, by the number in the rows.
    """

    tokenizer: Any = None
    datasets: dict[str, Any] = field(default_factory=dict)
    instances: list[Any] = field(default_factory=list)
    batches: BatchPlan | None = None
    memory: MemoryPlan | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class Findings:
    """All that is wrong, in words."""

    problems: list[str] = field(default_factory=list)

    def attempt(self, function: Callable[..., Result], *arguments: Any) -> Result | None:
        """What the function returns, or None and its complaint kept."""
        try:
            return function(*arguments)
        except (OSError, ValueError, ImportError) as error:
            self.problems.append(str(error))
            return None

    def stop_if_any(self) -> None:
        """Raises ValueError listing them."""
        if self.problems:
            raise ValueError("\n".join(["this run cannot start:", *self.problems]))


def plan_run(
    prepared: Prepared,
    findings: Findings,
    settings: tuple[int, Any, Any],
    lengths: list[int],
    longest: int,
    batch: tuple[int, int] | None = None,
    frozen: Any = None,
) -> None:
    """Plan batches, memory and disk, and set the accumulation in the training arguments.

    `settings`: the global batch size, the training arguments, the model's. `lengths`: tokens of each training
    row as a batch pads them; `longest`: of the longest row that the model sees, its completion included.
    `batch`: (rows, tokens of each) of one forward pass, where it is not a batch of those rows. `frozen`: the
    config of a model that is held beside the student.
    """
    global_batch_size, training, model_config = settings
    prepared.notes += without_slow_bf16(training)
    prepared.batches = findings.attempt(plan_batches_of, training, global_batch_size, lengths)
    if prepared.batches:  # else a batch may hold nothing
        prepared.notes += findings.attempt(check_scheduler, training, prepared.batches.num_steps) or []
        findings.attempt(check_fits_model, model_config, prepared.tokenizer, longest)
        prepared.memory = findings.attempt(
            *(check_memory, training, model_config),
            batch or (training.per_device_train_batch_size, longest),
            num_bytes(frozen, computed_dtype("auto")) if frozen else 0.0,
        )
    if prepared.batches and prepared.memory:
        disk = findings.attempt(check_disk, training, prepared.memory, prepared.batches.num_steps)
        prepared.notes += [str(plan) for plan in (prepared.batches, prepared.memory, disk) if plan]


def plan_batches_of(training: Any, global_batch_size: int, lengths: list[int]) -> BatchPlan:
    """Set the accumulation that makes the global batch, on however many processes this runs."""
    if training.gradient_accumulation_steps != 1:
        raise ValueError(
            "--gradient_accumulation_steps follows from --global_batch_size; set only the latter"
        )
    plan = plan_batches(
        global_batch_size,
        training.per_device_train_batch_size,
        training.world_size,
        lengths,
        training.num_train_epochs,
        training.max_steps,
    )
    training.gradient_accumulation_steps = plan.gradient_accumulation_steps
    return plan


def check_scheduler(training: Any, num_steps: int) -> list[str]:
    """Raises ValueError for a schedule that lacks settings of its own; says when the warm-up never ends, as
    in a short trial."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    num_warmup = training.get_warmup_steps(num_steps)
    try:
        get_scheduler(
            training.lr_scheduler_type, optimizer, num_warmup, num_steps, training.lr_scheduler_kwargs
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"--lr_scheduler_type {training.lr_scheduler_type}: {error}; set --lr_scheduler_kwargs"
        ) from error
    if num_warmup < num_steps:
        return []
    return [f"--warmup_steps {num_warmup} fill all {num_steps} steps: the learning rate is never reached"]


def check_fits_model(model_config: Any, tokenizer: Any, longest: int) -> None:
    """Raises ValueError for tokens that the model has no embedding for, and for rows beyond its window."""
    name = model_config.model_name_or_path
    config = load_config(name, model_config.model_revision).get_text_config()
    num_embeddings, last = config.vocab_size, max(tokenizer.get_vocab().values())
    if last >= num_embeddings:
        raise ValueError(
            f"the tokenizer of {name} has a token {last}, its model {num_embeddings} embeddings; save both "
            "together, with the embeddings resized"
        )
    window = getattr(config, "max_position_embeddings", None)
    if window is not None and longest > window:
        raise ValueError(
            f"the longest row has {longest} tokens, the window of {name} {window}; lower --max_length and "
            "make shorter rows, or take a model with a longer window"
        )
