"""The settings of `condensery sft` and `condensery preflight`: what Hugging Face's configs lack, and refuse.

TRL's SFTConfig and ModelConfig hold the rest; of theirs, those that would change nothing here are refused.
"""

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condensery.thinking import Thinking

# Rows are rendered, masked and checked here, and models loaded here: what TRL would do for that does not run.
RENDERED = "rows are rendered with the student's own chat template, and checked, before TRL sees them"
UNUSED = {
    "load_in_8bit": "use --load_in_4bit with --use_peft (QLoRA)",
    "trust_remote_code": "a model that brings its own code is not loaded",
    "model_init_kwargs": "use --dtype, --attn_implementation and --model_revision",
    "resume_from_checkpoint": "use --resume; it takes the newest complete checkpoint in --output_dir",
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


@dataclass
class SFTArguments:
    """What Hugging Face's configs lack."""

    train_file: Path = field(metadata={"help": "pairs to train on (JSONL, from `condensery pairs`)"})
    eval_file: Path | None = field(default=None, metadata={"help": "held-out pairs for the evaluation loss"})
    global_batch_size: int = field(
        default=64,
        metadata={"help": "pairs per optimizer step over all processes; accumulation follows from it"},
    )
    thinking: Thinking = field(
        default="none",
        metadata={
            "help": "keep: train on the teacher's reasoning; empty: on a thought that closes at once; "
            "none: without; serving follows"
        },
    )
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


def setting_problems(arguments: SFTArguments, training: Any, model_config: Any) -> list[str]:
    """Settings of Hugging Face's that would be accepted and change nothing, or that contradict each other."""
    problems = []
    for config in (training, model_config):
        for known in dataclasses.fields(config):
            value = getattr(config, known.name, known.default)
            if known.name in UNUSED and value != known.default:
                problems.append(f"--{known.name} {value} is not used here: {UNUSED[known.name]}")
    if training.completion_only_loss is False:
        problems.append("--completion_only_loss false is not used here: the loss is on the completion alone")
    if training.gradient_accumulation_steps != 1:
        problems.append("--gradient_accumulation_steps follows from --global_batch_size; set only the latter")
    if model_config.load_in_4bit and not model_config.use_peft:
        problems.append("--load_in_4bit needs --use_peft: 4-bit weights do not train, an adapter does")
    if arguments.eval_generate and arguments.eval_file is None:
        problems.append("--eval_generate needs --eval_file: held-out rows to write summaries for")
    if arguments.eval_generate and is_sharded(training):
        problems.append(
            "--eval_generate is not used where weights are sharded (FSDP, DeepSpeed): leave it out, and run "
            "`condensery evaluate` on an export"
        )
    return problems


def is_sharded(training: Any) -> bool:
    """Whether no process holds the whole model, as `accelerate launch` and --deepspeed say it."""
    launched = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return bool(training.deepspeed) or any(os.environ.get(name) == "true" for name in launched)
