"""Supervised fine-tuning of a summarizer on (conversation, summary) pairs, with TRL's SFTTrainer.

    accelerate launch distill/sft.py --config configs/sft/smollm2_cpu.yaml \\
        --train_file runs/pairs/train.jsonl --output_dir runs/sft
    condensery sft --config configs/sft/smollm2_cpu.yaml --train_file ... --output_dir ... --learning_rate
    1e-4

Every row is checked before anything is loaded; the tokens checked are the tokens trained. `--resume` goes on
from the newest complete checkpoint, with the losses that an uninterrupted run would have had.
"""

import dataclasses
import importlib.util
import os
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PROG = "condensery sft"

# Rows are rendered, masked and checked here, and models loaded here: what TRL would do for that does not run.
RENDERED = "rows are rendered with the student's own chat template, and checked, before TRL sees them"
UNUSED = {
    "load_in_4bit": "the weights are trained as they are; --use_peft trains an adapter",
    "load_in_8bit": "the weights are trained as they are; --use_peft trains an adapter",
    "trust_remote_code": "a model that brings its own code is not loaded",
    "model_init_kwargs": "use --dtype, --attn_implementation and --model_revision",
    "resume_from_checkpoint": "use --resume; it takes the newest complete checkpoint in --output_dir",
    "packing": "the rows of a pack see each other on most attention kernels",
    "eval_packing": "the rows of a pack see each other on most attention kernels",
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
    thinking: Literal["keep", "empty", "none"] = field(
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


def main(argv: list[str] | None = None) -> int:
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="transformers"
    )  # about TRL's own defaults
    from trl import ModelConfig, SFTConfig

    from condensery.files.config import fail, parse_args

    arguments, training, model_config = parse_args(
        *(SFTArguments, SFTConfig, ModelConfig),
        argv=argv,
        prog=PROG,
        description="Fine-tune a student on (conversation, summary) pairs, fully or with LoRA.",
        example=f"{PROG} --config configs/sft/smollm2_cpu.yaml --train_file pairs/train.jsonl "
        f"--output_dir runs/sft",
    )
    try:
        return run(arguments, training, model_config)
    except (OSError, ValueError, ImportError) as error:  # ImportError: an optimizer's or kernel's package
        fail(PROG, error)


def run(arguments: SFTArguments, training: Any, model_config: Any) -> int:
    """Check, plan, train, save. Raises ValueError on bad rows or settings, before a model is loaded."""
    from condensery.files.run_directory import open_run_directory
    from distill.memory import check_memory, peak_memory
    from distill.training_run import check_resume, finish_run, forget_run, is_finished, start_run
    from modeling.loading import load_tokenizer
    from modeling.progress import quiet_unless_terminal

    quiet_unless_terminal()
    check_settings(training, model_config)
    if model_config.model_name_or_path is None:
        raise ValueError("--model_name_or_path is missing: a hub name, a folder, or smollm2-135m-instruct")
    tokenizer = load_tokenizer(model_config.model_name_or_path, model_config.model_revision)
    datasets = load_datasets(arguments, training, tokenizer)
    plan_steps(arguments, training, num_rows=len(datasets["train"]))
    planned = check_memory(training, model_config, longest_row(datasets))
    say(str(planned))
    if arguments.dry_run:
        return 0
    output_dir = open_run_directory(training.output_dir, resume=arguments.resume)
    if is_finished(output_dir):
        say(f"{output_dir} is finished; nothing to resume")
        return 0
    check_resume(output_dir, arguments, training, model_config)
    try:
        trainer = build_trainer(training, model_config, tokenizer, datasets)
        checkpoint = start_run(output_dir, arguments, training, model_config)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except Exception:
        forget_run(output_dir)
        raise
    if "eval" in datasets and training.eval_strategy == "no":  # a file that is given is looked at
        trainer.evaluate()
    finish_run(trainer, output_dir, datasets)
    say(f"memory at its peak: {peak_memory() / 2**30:.2f} GiB, planned {planned.total / 2**30:.2f}")
    return 0


def check_settings(training: Any, model_config: Any) -> None:
    """Raises ValueError for settings of Hugging Face's that would be accepted and change nothing."""
    for config in (training, model_config):
        for known in dataclasses.fields(config):
            value = getattr(config, known.name, known.default)
            if known.name in UNUSED and value != known.default:
                raise ValueError(f"--{known.name} {value} is not used here: {UNUSED[known.name]}")
    if training.completion_only_loss is False:
        raise ValueError("--completion_only_loss false is not used here: the loss is on the completion alone")


def load_datasets(arguments: SFTArguments, training: Any, tokenizer: Any) -> dict[str, Any]:
    """Rendered, checked `input_ids` and `labels` by split. Raises ValueError listing all bad rows."""
    from datasets import Dataset

    from modeling.preflight import read_pairs
    from modeling.progress import show_sample
    from modeling.row_checks import check_rows

    files = {"train": arguments.train_file, "eval": arguments.eval_file}
    rows = {split: read_pairs([path])[: arguments.limit] for split, path in files.items() if path}
    together = [row for split in rows.values() for row in split]
    checked = check_rows(together, tokenizer, training.max_length, arguments.thinking)
    if checked.problems:
        raise ValueError(f"the pairs cannot be trained on:\n{checked.report()}")
    say(checked.report())
    say(show_sample(tokenizer, checked.pairs[0]))
    datasets, start = {}, 0
    for split, split_rows in rows.items():
        pairs = checked.pairs[start : start + len(split_rows)]
        start += len(split_rows)
        datasets[split] = Dataset.from_list([{"input_ids": p.input_ids, "labels": p.labels} for p in pairs])
    return datasets


def longest_row(datasets: dict[str, Any]) -> int:
    return max(len(ids) for dataset in datasets.values() for ids in dataset["input_ids"])


def plan_steps(arguments: SFTArguments, training: Any, num_rows: int) -> None:
    """Set the accumulation that makes the global batch, on however many processes this runs."""
    from modeling.batches import plan_batches

    if training.gradient_accumulation_steps != 1:
        raise ValueError(
            "--gradient_accumulation_steps follows from --global_batch_size; set only the latter"
        )
    plan = plan_batches(
        arguments.global_batch_size,
        training.per_device_train_batch_size,
        training.world_size,
        num_rows,
        training.num_train_epochs,
        training.max_steps,
    )
    training.gradient_accumulation_steps = plan.gradient_accumulation_steps
    say(str(plan))


def build_trainer(training: Any, model_config: Any, tokenizer: Any, datasets: dict[str, Any]) -> Any:
    """TRL's trainer on rows that are tokens already, with our progress lines and LoRA checks."""
    from transformers import PrinterCallback, ProgressCallback
    from trl import SFTTrainer, get_peft_config

    from modeling.adapters import CheckTargetsLearn, check_targets_trainable
    from modeling.lm_head import score_supervised_positions_only
    from modeling.loading import load_model
    from modeling.progress import ProgressLines

    score_supervised_positions_only()

    model = load_model(
        model_config.model_name_or_path,
        model_config.dtype,
        model_config.model_revision,
        model_config.attn_implementation,
    )
    trainer: Any = SFTTrainer(
        model=model,
        args=training,
        train_dataset=datasets["train"],
        eval_dataset=datasets.get("eval"),
        processing_class=tokenizer,
        peft_config=get_peft_config(model_config),
    )
    if model_config.use_peft:  # the name, not this machine's folder: the adapter may be merged elsewhere
        trainer.model.peft_config["default"].base_model_name_or_path = model_config.model_name_or_path
    targets = (model_config.lora_target_parameters or []) if model_config.use_peft else []
    check_targets_trainable(trainer.model, targets)
    trainer.add_callback(CheckTargetsLearn(targets))
    trainer.add_callback(ProgressLines())
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    if training.use_cpu:
        warn_of_idle_cores(training.world_size)
    return trainer


def warn_of_idle_cores(num_processes: int) -> None:
    """`accelerate launch` sets OMP_NUM_THREADS=1 where it is not told otherwise, which nobody notices."""
    import torch

    num_cores = os.cpu_count() or 1
    if torch.get_num_threads() == 1 and num_processes < num_cores:
        say(f"one thread per process on {num_cores} cores; for all of them start it with "
            f"OMP_NUM_THREADS={num_cores // num_processes}")  # fmt: skip


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if importlib.util.find_spec("condensery") is None:
        sys.exit("condensery is not installed; type: pip install -e '.[train]'   (in the repository root)")
    sys.exit(main())
