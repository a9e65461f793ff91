"""The settings of the training commands: what Hugging Face's configs lack, and what of theirs is refused.

TRL's configs hold the rest; of theirs, those that would change nothing here are refused.
"""

import dataclasses
import os
import warnings
from dataclasses import dataclass, field
from typing import Any

from modeling.settings import UNUSED, UNUSED_ON_POLICY, RunArguments, common_problems, unused_settings
from modeling.sharding import is_sharded

# Rows are rendered, masked and checked here, and models loaded here: what TRL would do for that does not run.
RENDERED = "rows are rendered with the student's own chat template, and checked, before TRL sees them"
UNUSED_IN_SFT = UNUSED | {
    "packing": "it changes how many pairs a step sees; --padding_free joins the rows of a batch instead",
    "eval_packing": "the rows of an evaluation are padded, or joined with --padding_free",
    "assistant_only_loss": "the loss is on the completion alone",
    "chat_template_path": "save it as chat_template.jinja in the model's folder",
    "eos_token": "the stop token is the chat template's",
    "truncation_mode": "no row is cut; those that are too long are listed",
    "dataset_text_field": RENDERED,
    "dataset_kwargs": RENDERED,
    "dataset_num_proc": RENDERED,
    "shuffle_dataset": "the sampler shuffles, with --seed",
}
NO_LABELS = "the loss is a divergence from the teacher, without labels"
KEPT_ORDER = "the sampler shuffles, with --seed, or keeps the order of the file"
UNUSED_IN_DISTILLATION = UNUSED_ON_POLICY | {
    "teacher_model_init_kwargs": "the teacher is loaded in the precision it is stored in",
    "label_smoothing_factor": NO_LABELS,
    "train_sampling_strategy": KEPT_ORDER,
    "length_column_name": KEPT_ORDER,
    "dataloader_drop_last": "a step's batch is always whole",
}

EVALUATED = ("loss", "mean_token_accuracy", "entropy", "fact_recall", "parsed")


@dataclass
class StudentArguments(RunArguments):
    """Of every run that trains on pairs."""

    global_batch_size: int = field(
        default=64,
        metadata={"help": "pairs per optimizer step over all processes; accumulation follows from it"},
    )


@dataclass
class SFTArguments(StudentArguments):
    """What Hugging Face's configs lack, for supervised fine-tuning."""

    freeze_router: bool = field(
        default=False, metadata={"help": "a mixture of experts keeps choosing them as it has learned to"}
    )
    eval_generate: int = field(
        default=0,
        metadata={
            "help": "at each evaluation write a summary for this many rows of --eval_file and log "
            "eval_fact_recall",
            "minimum": 0,
        },
    )


@dataclass
class OnPolicyArguments(StudentArguments):
    """What Hugging Face's configs lack, for distillation on the student's own summaries."""

    max_length: int = field(
        default=1024,
        metadata={"help": "tokens of a prompt together with --max_completion_length", "minimum": 1},
    )


def parse_sft(argv: list[str] | None, prog: str, description: str) -> tuple[Any, Any, Any]:
    """(ours, TRL's training arguments, the model's) of `condensery sft` and `condensery preflight`."""
    # About TRL's own defaults, and a name that transformers has only just changed.
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    from trl import ModelConfig, SFTConfig

    from condensery.files.config import parse_args

    return parse_args(
        *(SFTArguments, SFTConfig, ModelConfig),
        argv=argv,
        prog=prog,
        description=description,
        example=f"{prog} --config configs/sft/smollm2_cpu.yaml --train_file pairs/train.jsonl "
        "--output_dir runs/sft",
    )


def sft_problems(arguments: SFTArguments, training: Any, model_config: Any) -> list[str]:
    """Settings of Hugging Face's that would be accepted and change nothing, or that contradict each other."""
    problems = unused_settings(UNUSED_IN_SFT, training, model_config)
    if training.completion_only_loss is False:
        problems.append("--completion_only_loss false is not used here: the loss is on the completion alone")
    problems += common_problems(arguments, training, model_config)
    if model_config.load_in_4bit and not model_config.use_peft:
        problems.append("--load_in_4bit needs --use_peft: 4-bit weights do not train, an adapter does")
    if arguments.eval_generate and arguments.eval_file is None:
        problems.append("--eval_generate needs --eval_file: held-out rows to write summaries for")
    best = str(training.metric_for_best_model or "loss").removeprefix("eval_")
    if best in ("fact_recall", "parsed") and not arguments.eval_generate:
        problems.append(f"--metric_for_best_model {best} needs --eval_generate")
    elif best not in EVALUATED:
        problems.append(f"--metric_for_best_model {best} is not measured; take {', '.join(EVALUATED)}")
    if arguments.eval_generate and is_sharded(training):
        problems.append(
            "--eval_generate is not used where weights are sharded (FSDP, DeepSpeed): leave it out, and run "
            "`condensery evaluate` on an export"
        )
    return problems


def on_policy_problems(arguments: Any, training: Any, model_config: Any) -> list[str]:
    """The same for on-policy distillation, and settings with which it would fail late."""
    problems = unused_settings(UNUSED_IN_DISTILLATION, training, model_config)
    if not training.use_vllm:
        vllm = {
            known.name: "it needs --use_vllm"
            for known in dataclasses.fields(training)
            if known.name.startswith("vllm_")
        }
        problems += unused_settings(vllm, training)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":  # TRL 1.16 shards the teacher with DeepSpeed alone
        problems.append(
            "under FSDP the teacher stays where the student is not; start it without (DDP), or with "
            "accelerate launch --use_deepspeed --zero_stage 3"
        )
    for name in ("temperature", "max_completion_length"):
        value = vars(training)[name]
        if value is None or value <= 0:
            problems.append(f"--{name} is {value}; it must be above 0")
    problems += common_problems(arguments, training, model_config)
    if training.teacher_model_name_or_path is None:
        problems.append("--teacher_model_name_or_path is missing: a model of the student's vocabulary")
    return problems
