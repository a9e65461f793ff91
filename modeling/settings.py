"""The settings of training runs: ours, and what of Hugging Face's is refused before anything is loaded."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condensery.thinking import Thinking

# Of Hugging Face's settings, what would be accepted in any run and change nothing, and why.
UNUSED = {
    "load_in_8bit": "use --load_in_4bit with --use_peft (QLoRA)",
    "trust_remote_code": "a model that brings its own code is not loaded",
    "model_init_kwargs": "use --dtype, --attn_implementation and --model_revision",
    "resume_from_checkpoint": "use --resume; it takes the newest complete checkpoint in --output_dir",
    "push_to_hub": "export it first, then: hf upload NAME FOLDER",
    "lora_task_type": "a summarizer is a causal language model",
    "do_predict": "`condensery evaluate` measures a summarizer",
}
# The smallest value of each number; those of the second table must be above 0.
AT_LEAST = {
    **dict.fromkeys(("weight_decay", "max_grad_norm", "warmup_steps", "warmup_ratio", "seed"), 0),
    **dict.fromkeys(("label_smoothing_factor", "lora_dropout", "dataloader_num_workers"), 0),
    **dict.fromkeys(("neftune_noise_alpha", "adam_beta1", "adam_beta2"), 0),
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size", "save_total_limit"), 1),
    **dict.fromkeys(("max_length", "eval_accumulation_steps", "lora_r", "lora_alpha", "ddp_timeout"), 1),
    **dict.fromkeys(("dataloader_prefetch_factor", "pad_to_multiple_of"), 1),
}
ABOVE_ZERO = (
    "learning_rate",
    "logging_steps",
    "eval_steps",
    "save_steps",
    "num_train_epochs",
    "adam_epsilon",
)
BELOW_ONE = ("label_smoothing_factor", "lora_dropout", "adam_beta1", "adam_beta2")
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


def number_problems(*configs: Any) -> list[str]:
    """Numbers that Hugging Face takes, and with which a run fails late or trains nothing."""
    values = {
        known.name: getattr(config, known.name) for config in configs for known in dataclasses.fields(config)
    }
    numbers = {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    problems = [
        f"--{name} is {numbers[name]:g}; it must be at least {least}"
        for name, least in AT_LEAST.items()
        if name in numbers and not numbers[name] >= least
    ]
    problems += [
        f"--{name} is {numbers[name]:g}; it must be above 0"
        for name in ABOVE_ZERO
        if name in numbers and not numbers[name] > 0
    ]
    problems += [
        f"--{name} is {numbers[name]:g}; it must be below 1"
        for name in BELOW_ONE
        if name in numbers and numbers[name] >= 1
    ]
    if values.get("max_steps") == 0:
        problems.append("--max_steps is 0; a number of steps, or -1 for --num_train_epochs")
    return problems


def common_problems(arguments: "RunArguments", training: Any, model_config: Any) -> list[str]:
    """What is wrong with the settings of any training run."""
    problems = number_problems(training, model_config) + pattern_problems(model_config)
    problems += adapter_problems(model_config)
    problems += directory_problems(training.output_dir, arguments.resume or arguments.dry_run)
    if model_config.model_name_or_path is None:
        problems.append("--model_name_or_path is missing: a hub name, a folder, smollm2-135m-instruct")
    if arguments.eval_file is None and (training.eval_strategy != "no" or training.eval_on_start):
        problems.append("--eval_strategy and --eval_on_start need --eval_file: held-out rows")
    if training.use_cpu and model_config.attn_implementation == "flex_attention":
        problems.append("--attn_implementation flex_attention trains on GPUs alone; take sdpa")
    if training.use_cpu and getattr(training, "activation_offloading", False):
        problems.append("--activation_offloading moves from a GPU to the CPU, and --use_cpu has none")
    return problems


def directory_problems(output_dir: str, may_exist: bool) -> list[str]:
    """A run gets a folder of its own: it would write over what stands in another's."""
    if output_dir in ("", "trainer_output"):  # the latter: where Hugging Face would write, unasked
        return ["--output_dir is missing: a new folder for the run"]
    folder = Path(output_dir)
    blocked = next(
        (place for place in (folder, *folder.parents) if place.exists() or place.is_symlink()), None
    )
    if blocked is not None and not blocked.is_dir():
        return [f"--output_dir {output_dir}: {blocked} is no folder; choose another"]
    if (folder / "run.json").is_file():
        advice = "continue it with --resume, choose another --output_dir, or remove it"
        return [] if may_exist else [f"{output_dir} already holds a run; {advice}"]
    if folder.is_dir() and any(folder.iterdir()):
        return [f"{output_dir} holds files of no run; choose another --output_dir, or remove it"]
    return []


def pattern_problems(model_config: Any) -> list[str]:
    """TRL makes a single target a pattern, which has to match the whole of a module's name."""
    target = model_config.lora_target_modules
    if isinstance(target, str) and target.isidentifier():
        return [
            f"--lora_target_modules {target} alone is read as a pattern for whole names and matches "
            rf"nothing; write '.*\.{target}'"
        ]
    return []


def adapter_problems(model_config: Any) -> list[str]:
    """Settings of an adapter, where none is trained."""
    if model_config.use_peft:
        return []
    usual = type(model_config)()
    return [
        f"--{known.name} says how LoRA trains, and all weights train; add --use_peft, or leave it out"
        for known in dataclasses.fields(model_config)
        if known.name.startswith("lora_") and getattr(model_config, known.name) != getattr(usual, known.name)
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
