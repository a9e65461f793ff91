"""What can be known to be wrong with a training run before it starts, collected and said at once."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from modeling.batches import BatchPlan, plan_batches
from modeling.disk import check_disk
from modeling.memory import check_memory
from modeling.memory_plan import MemoryPlan

Result = TypeVar("Result")


@dataclass
class Prepared:
    """A run whose settings and rows are fit to train: rows by split, and the plans to print."""

    tokenizer: Any = None
    datasets: dict[str, Any] = field(default_factory=dict)
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


def unused_settings(unused: dict[str, str], *configs: Any) -> list[str]:
    """Settings of Hugging Face's that would be accepted and change nothing. `unused`: why, by name."""
    return [
        f"--{known.name} {value} is not used here: {unused[known.name]}"
        for config in configs
        for known in dataclasses.fields(config)
        if known.name in unused and (value := getattr(config, known.name)) != known.default
    ]


def check_reporting(services: list[str]) -> None:
    """Raises ValueError for a service of --report_to that is unknown, or whose package is not installed."""
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    if unknown := sorted(set(services) - set(INTEGRATION_TO_CALLBACK)):
        raise ValueError(
            f"--report_to {' '.join(unknown)}: unknown; take trackio, wandb, tensorboard or another of "
            f"transformers, or none"
        )
    checked = set(INTEGRATION_TO_CALLBACK) - {"flyte"}  # transformers looks for it nowhere else
    missing = sorted(set(services) & checked - set(get_available_reporting_integrations()))
    if missing:
        raise ValueError(
            f"--report_to {' '.join(missing)}: pip install {' '.join(missing)}, or --report_to none"
        )


def plan_run(
    prepared: Prepared,
    findings: Findings,
    settings: tuple[int, Any, Any],
    lengths: list[int],
    longest: int,
) -> None:
    """Plan batches, memory and disk, and set the accumulation in the training arguments.

    `settings`: the global batch size, the training arguments, the model's. `lengths`: tokens of each training
    row as a batch pads them; `longest`: of the longest row that the model sees, its completion included.
    """
    global_batch_size, training, model_config = settings
    prepared.batches = findings.attempt(plan_batches_of, training, global_batch_size, lengths)
    if prepared.batches:  # else a batch may hold nothing
        prepared.memory = findings.attempt(check_memory, training, model_config, longest)
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
