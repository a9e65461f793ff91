"""What can be known to be wrong with a training run before it starts, collected and said at once."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from condensery.thinking import Thinking
from modeling.batches import BatchPlan, plan_batches
from modeling.disk import check_disk
from modeling.memory import check_memory
from modeling.memory_plan import MemoryPlan

Result = TypeVar("Result")


@dataclass
class RunArguments:
    """Of every training run."""

    train_file: Path = field(metadata={"help": "pairs to train on (JSONL, from `condensery pairs`)"})
    eval_file: Path | None = field(default=None, metadata={"help": "held-out rows, of the same kind"})
    thinking: Thinking = field(
        default="none",
        metadata={
            "help": "keep: train on the teacher's reasoning; empty: on a thought that closes at once; "
            "none: without; serving follows"
        },
    )
    limit: int | None = field(
        default=None, metadata={"help": "only the first rows of each file", "minimum": 1}
    )
    dry_run: bool = field(
        default=False, metadata={"help": "check rows and batches, show a sample, train nothing"}
    )
    resume: bool = field(
        default=False,
        metadata={"help": "continue the run in --output_dir from its newest complete checkpoint"},
    )

    @property
    def files(self) -> dict[str, Path]:
        """The files by split."""
        return {"train": self.train_file} | ({"eval": self.eval_file} if self.eval_file else {})


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


# Of Hugging Face's settings, what would be accepted in any run and change nothing, and why.
UNUSED = {
    "load_in_8bit": "use --load_in_4bit with --use_peft (QLoRA)",
    "trust_remote_code": "a model that brings its own code is not loaded",
    "model_init_kwargs": "use --dtype, --attn_implementation and --model_revision",
    "resume_from_checkpoint": "use --resume; it takes the newest complete checkpoint in --output_dir",
}
# Where a student writes while it trains.
AS_THEY_ARE = "the weights are trained as they are; --use_peft trains an adapter"
UNUSED_ON_POLICY = UNUSED | {
    "load_in_4bit": AS_THEY_ARE,
    "load_in_8bit": AS_THEY_ARE,
    "chat_template_kwargs": "prompts are rendered as a server renders them; --thinking sets the switch",
    "max_tool_calling_iterations": "a summarizer calls no tools",
    "remove_unused_columns": "the columns are what TRL needs",
}


def unused_settings(unused: dict[str, str], *configs: Any) -> list[str]:
    """Settings of Hugging Face's that would be accepted and change nothing. `unused`: why, by name."""
    return [
        f"--{known.name} {value} is not used here: {unused[known.name]}"
        for config in configs
        for known in dataclasses.fields(config)
        if known.name in unused and (value := getattr(config, known.name)) != known.default
    ]


def common_problems(arguments: RunArguments, training: Any, model_config: Any) -> list[str]:
    """What no training run can do without."""
    problems = pattern_problems(model_config)
    if model_config.model_name_or_path is None:
        problems.append("--model_name_or_path is missing: a hub name, a folder, smollm2-135m-instruct")
    if training.output_dir == "trainer_output":  # where Hugging Face would write, unasked
        problems.append("--output_dir is missing: a new folder for the run")
    elif (Path(training.output_dir) / "run.json").exists() and not (arguments.resume or arguments.dry_run):
        problems.append(
            f"{training.output_dir} already holds a run; continue it with --resume, choose another "
            "--output_dir, or remove it"
        )
    return problems


def pattern_problems(model_config: Any) -> list[str]:
    """TRL makes a single target a pattern, which has to match the whole of a module's name."""
    target = model_config.lora_target_modules
    if isinstance(target, str) and target.isidentifier():
        return [
            f"--lora_target_modules {target} alone is read as a pattern for whole names and matches "
            rf"nothing; write '.*\.{target}'"
        ]
    return []


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
