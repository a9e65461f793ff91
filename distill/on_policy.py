"""On-policy distillation of a summarizer, with TRL's DistillationTrainer: an optional stage after SFT.

    accelerate launch distill/on_policy.py --config configs/on_policy/smollm2_cpu.yaml \\
        --model_name_or_path runs/sft --teacher_model_name_or_path runs/teacher \\
        --train_file runs/pairs/train.jsonl --output_dir runs/on_policy
    condensery on-policy --config ...

The student writes a summary for each prompt; the teacher, of the same vocabulary, scores every token of it.
The summaries in the pairs are not trained on. `condensery export` takes the result like that of SFT.
"""

import dataclasses
import importlib.util
import os
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PROG = "condensery on-policy"

RENDERED = "prompts are rendered as a server renders them; --thinking sets the switch"
NO_LABELS = "the loss is a divergence from the teacher, without labels"
UNUSED = {
    "load_in_4bit": "the weights are trained as they are; --use_peft trains an adapter",
    "load_in_8bit": "the weights are trained as they are; --use_peft trains an adapter",
    "trust_remote_code": "a model that brings its own code is not loaded",
    "model_init_kwargs": "use --dtype, --attn_implementation and --model_revision",
    "teacher_model_init_kwargs": "the teacher is loaded in the precision it is stored in",
    "resume_from_checkpoint": "use --resume; it takes the newest complete checkpoint in --output_dir",
    "chat_template_kwargs": RENDERED,
    "max_tool_calling_iterations": "a summarizer calls no tools",
    "remove_unused_columns": "TRL sees the prompts alone",
    "label_smoothing_factor": NO_LABELS,
    "train_sampling_strategy": "the sampler shuffles, with --seed, or keeps the order of the file",
    "length_column_name": "the sampler shuffles, with --seed, or keeps the order of the file",
    "dataloader_drop_last": "a step's batch is always whole",
}


@dataclass
class OnPolicyArguments:
    """What Hugging Face's configs lack."""

    train_file: Path = field(metadata={"help": "pairs whose prompts the student answers (JSONL)"})
    eval_file: Path | None = field(
        default=None, metadata={"help": "held-out pairs, for the divergence on their prompts"}
    )
    global_batch_size: int = field(
        default=64,
        metadata={"help": "prompts per optimizer step over all processes; accumulation follows from it"},
    )
    max_length: int = field(
        default=1024,
        metadata={"help": "tokens of a prompt together with --max_completion_length", "minimum": 1},
    )
    thinking: Literal["keep", "empty", "none"] = field(
        default="none",
        metadata={"help": "as in the student's SFT: keep: it thinks; empty: its thoughts are empty; none"},
    )
    limit: int | None = field(
        default=None, metadata={"help": "only the first rows of each file", "minimum": 1}
    )
    dry_run: bool = field(
        default=False, metadata={"help": "check rows, teacher and batches, show a prompt, train nothing"}
    )
    resume: bool = field(
        default=False,
        metadata={"help": "continue the run in --output_dir from its newest complete checkpoint"},
    )


def main(argv: list[str] | None = None) -> int:
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="transformers"
    )  # about TRL's own defaults
    from trl import DistillationConfig, ModelConfig

    from condensery.files.config import fail, parse_args

    arguments, training, model_config = parse_args(
        *(OnPolicyArguments, DistillationConfig, ModelConfig),
        argv=argv,
        prog=PROG,
        description="Train a student on its own summaries, each token scored by a teacher of its vocabulary.",
        example=f"{PROG} --config configs/on_policy/smollm2_cpu.yaml --model_name_or_path runs/sft "
        "--teacher_model_name_or_path runs/teacher --train_file pairs/train.jsonl --output_dir runs/tuned",
    )
    try:
        return run(arguments, training, model_config)
    except (OSError, ValueError, ImportError) as error:  # ImportError: an optimizer's or kernel's package
        fail(PROG, error)


def run(arguments: OnPolicyArguments, training: Any, model_config: Any) -> int:
    """Check, plan, train, save. Raises ValueError on bad rows or settings, before a model is loaded."""
    from condensery.files.run_directory import open_run_directory
    from distill.memory import check_memory, peak_memory
    from distill.training_run import check_resume, finish_run, forget_run, is_finished, start_run
    from modeling.checkpoints import disk_errors
    from modeling.progress import quiet_unless_terminal

    quiet_unless_terminal()
    check_settings(training, model_config)
    tokenizer = check_models(training, model_config)
    datasets = load_datasets(arguments, training, tokenizer)
    plan_steps(arguments, training, num_rows=len(datasets["train"]))
    longest = max(len(ids) for dataset in datasets.values() for ids in dataset["prompt"])
    planned = check_memory(training, model_config, longest + training.max_completion_length)
    say(f"{planned}, the teacher aside")
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
        with disk_errors(output_dir):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except Exception:
        forget_run(output_dir)
        raise
    if "eval" in datasets and training.eval_strategy == "no":  # a file that is given is looked at
        trainer.evaluate()
    finish_run(trainer, output_dir, datasets)
    say(f"memory at its peak: {peak_memory() / 2**30:.2f} GiB")
    return 0


def check_settings(training: Any, model_config: Any) -> None:
    """Raises ValueError for settings of Hugging Face's that would be accepted and change nothing, or fail
    late."""
    for config in (training, model_config):
        for known in dataclasses.fields(config):
            value = getattr(config, known.name, known.default)
            if value == known.default:
                continue
            if known.name in UNUSED:
                raise ValueError(f"--{known.name} {value} is not used here: {UNUSED[known.name]}")
            if known.name.startswith("vllm_") and not training.use_vllm:
                raise ValueError(f"--{known.name} {value} is not used without --use_vllm")
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":  # TRL 1.16 shards the teacher with DeepSpeed alone
        raise ValueError(
            "under FSDP the teacher stays where the student is not; start it without (DDP), or with "
            "accelerate launch --use_deepspeed --zero_stage 3"
        )
    for name in ("temperature", "max_completion_length"):
        value = vars(training)[name]
        if value is None or value <= 0:
            raise ValueError(f"--{name} is {value}; it must be above 0")
    if model_config.model_name_or_path is None:
        raise ValueError("--model_name_or_path is missing: the student, a run of SFT, an export or a base")
    if training.teacher_model_name_or_path is None:
        raise ValueError("--teacher_model_name_or_path is missing: a model of the student's vocabulary")


def check_models(training: Any, model_config: Any) -> Any:
    """The student's tokenizer. Raises ValueError where student and teacher cannot be had, or not together."""
    from distill.teacher import check_same_head, check_same_vocabulary, config_of, num_bytes
    from modeling.loading import check_weights, load_tokenizer, resolve_model

    student, teacher = model_config.model_name_or_path, training.teacher_model_name_or_path
    revisions = model_config.model_revision, training.teacher_model_revision
    tokenizer = load_tokenizer(student, revisions[0])
    check_same_vocabulary(tokenizer, load_tokenizer(teacher, revisions[1]), (student, teacher))
    for name in (student, teacher):
        check_weights(name)
    if (Path(resolve_model(student)) / "adapter_config.json").is_file():
        raise ValueError(
            f"the student {student} is an adapter; merge it with `condensery export --checkpoint {student} "
            "--output_dir ...`, and give the export"
        )
    teacher_config = config_of(teacher, revisions[1])
    check_same_head(config_of(student, revisions[0]), teacher_config, (student, teacher))
    say(f"teacher {teacher}: {num_bytes(teacher_config) / 2**30:.2f} GiB of weights")
    return tokenizer


def load_datasets(arguments: OnPolicyArguments, training: Any, tokenizer: Any) -> dict[str, Any]:
    """The checked `prompt`s by split, as a server's tokens. Raises ValueError listing all bad rows."""
    from datasets import Dataset

    from modeling.pair_rows import leaked_questions, read_pairs
    from modeling.progress import show_prompt
    from modeling.row_checks import Problem, check_rows

    files = {"train": arguments.train_file, "eval": arguments.eval_file}
    rows = {split: read_pairs(path, arguments.limit) for split, path in files.items() if path}
    together = [row for split in rows.values() for row in split]
    checked = check_rows(together, tokenizer, arguments.max_length, arguments.thinking)
    room = arguments.max_length - training.max_completion_length
    checked.problems += leaked_questions(rows["train"], rows.get("eval", []))
    checked.problems += [
        Problem(
            place,
            "too_long",
            f"{pair.num_prompt_tokens} tokens of prompt, at most {room}: --max_length "
            f"{arguments.max_length} less --max_completion_length {training.max_completion_length}",
        )
        for place, pair in checked.pairs.items()
        if pair.num_prompt_tokens > room
    ]
    if checked.problems:
        raise ValueError("\n".join(["these pairs cannot be trained on:", *checked.complaints()]))
    say(checked.summary())
    first = next(iter(checked.pairs.values()))
    say(f"{show_prompt(tokenizer, first)}>>> the student writes, the teacher scores each token")
    return {
        split: Dataset.from_list([{"prompt": checked.pairs[place].prompt_ids} for place, _ in split_rows])
        for split, split_rows in rows.items()
    }


def plan_steps(arguments: OnPolicyArguments, training: Any, num_rows: int) -> None:
    """Set the accumulation that makes the global batch, on however many processes this runs.

    Generation works on whole batches: an epoch leaves out the rows that fill none.
    """
    from modeling.batches import plan_batches

    if training.gradient_accumulation_steps != 1:
        raise ValueError(
            "--gradient_accumulation_steps follows from --global_batch_size; set only the latter"
        )
    num_left_out = num_rows % arguments.global_batch_size if arguments.global_batch_size > 0 else 0
    if num_left_out == num_rows:
        raise ValueError(
            f"{num_rows} rows are fewer than --global_batch_size {arguments.global_batch_size}; lower it"
        )
    plan = plan_batches(
        arguments.global_batch_size,
        training.per_device_train_batch_size,
        training.world_size,
        [1] * (num_rows - num_left_out),  # prompts are padded on their own, for generation
        training.num_train_epochs,
        training.max_steps,
    )
    training.gradient_accumulation_steps = plan.gradient_accumulation_steps
    say(str(plan))
    if num_left_out:
        say(f"each epoch leaves out {num_left_out} of {num_rows} rows, others each time: they fill no batch")


def build_trainer(training: Any, model_config: Any, tokenizer: Any, datasets: dict[str, Any]) -> Any:
    """TRL's trainer with student and teacher, our progress lines and LoRA checks."""
    from transformers import PrinterCallback, ProgressCallback
    from trl import get_peft_config

    from distill.on_policy_trainer import OnPolicyTrainer, SeedEachStep
    from distill.training_run import student_weights
    from modeling.adapters import CheckTargetsLearn, check_targets_trainable
    from modeling.loading import load_model
    from modeling.progress import ProgressLines

    place, revision = student_weights(training, model_config)
    trainer: Any = OnPolicyTrainer(
        model=load_model(place, model_config.dtype, revision, model_config.attn_implementation),
        teacher_model=load_model(
            training.teacher_model_name_or_path,
            "auto",
            training.teacher_model_revision,
            model_config.attn_implementation,
        ),
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
    for callback in (CheckTargetsLearn(targets), SeedEachStep(), ProgressLines()):
        trainer.add_callback(callback)
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if importlib.util.find_spec("condensery") is None:
        sys.exit("condensery is not installed; type: pip install -e '.[train]'   (in the repository root)")
    sys.exit(main())
