"""Supervised fine-tuning of a summarizer on (conversation, summary) pairs, with TRL's SFTTrainer.

    accelerate launch distill/sft.py --config configs/sft/smollm2_cpu.yaml \\
        --train_file runs/pairs/train.jsonl --output_dir runs/sft
    condensery sft --config configs/sft/smollm2_cpu.yaml --train_file ... --output_dir ... --learning_rate
    1e-4

Every row is checked before anything is loaded; the tokens checked are the tokens trained. `--resume` goes on
from the newest complete checkpoint, with the losses that an uninterrupted run would have had.
"""

import copy
import importlib.util
import os
import sys
import warnings
from typing import Any

PROG = "condensery sft"


def main(argv: list[str] | None = None) -> int:
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="transformers"
    )  # about TRL's own defaults
    from trl import ModelConfig, SFTConfig

    from condensery.files.config import fail, parse_args
    from distill.arguments import SFTArguments

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


def run(arguments: Any, training: Any, model_config: Any) -> int:
    """Check, plan, train, save. Raises ValueError on bad rows or settings, before a model is loaded."""
    from condensery.files.run_directory import open_run_directory
    from distill.memory import peak_memory, return_freed_memory
    from distill.preflight import prepare
    from distill.training_run import check_resume, finish_run, forget_run, is_finished, start_run
    from modeling.checkpoints import disk_errors
    from modeling.progress import quiet_unless_terminal

    quiet_unless_terminal()
    prepared, problems = prepare(arguments, training, model_config)
    if problems:
        raise ValueError("\n".join(["this run cannot start:", *problems]))
    say("\n".join(prepared.notes))
    if arguments.dry_run:
        return 0
    output_dir = open_run_directory(training.output_dir, resume=arguments.resume)
    if is_finished(output_dir):
        say(f"{output_dir} is finished; nothing to resume")
        return 0
    check_resume(output_dir, arguments, training, model_config)
    if training.use_cpu and training.gradient_checkpointing:  # memory counts for more than time
        return_freed_memory()
    try:
        trainer = build_trainer(arguments, training, model_config, prepared)
        checkpoint = start_run(output_dir, arguments, training, model_config)
        with disk_errors(output_dir):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except Exception:
        forget_run(output_dir)
        raise
    if "eval" in prepared.datasets and training.eval_strategy == "no":  # a file that is given is looked at
        trainer.evaluate()
    finish_run(trainer, output_dir, prepared.datasets)
    say(f"memory at its peak: {peak_memory() / 2**30:.2f} GiB, planned {prepared.memory.total / 2**30:.2f}")
    return 0


def build_trainer(arguments: Any, training: Any, model_config: Any, prepared: Any) -> Any:
    """TRL's trainer on rows that are tokens already, with our checks and progress lines."""
    from transformers import PrinterCallback, ProgressCallback
    from trl import SFTTrainer, get_peft_config

    from modeling.adapters import check_targets_trainable
    from modeling.lm_head import score_supervised_positions_only
    from modeling.trainable import describe_trainable

    score_supervised_positions_only()
    settings = copy.copy(training)
    settings.logging_nan_inf_filter = False  # it hides a loss that is no number behind earlier ones
    if training.padding_free:
        settings.max_length = None  # the rows are checked; TRL refuses to leave that to us
    trainer: Any = SFTTrainer(
        model=load_student(arguments, training, model_config),
        args=settings,
        train_dataset=prepared.datasets["train"],
        eval_dataset=prepared.datasets.get("eval"),
        processing_class=prepared.tokenizer,
        peft_config=get_peft_config(model_config),
    )
    if model_config.use_peft:  # the name, not this machine's folder: the adapter may be merged elsewhere
        trainer.model.peft_config["default"].base_model_name_or_path = model_config.model_name_or_path
    targets = (model_config.lora_target_parameters or []) if model_config.use_peft else []
    check_targets_trainable(trainer.model, targets)
    say(describe_trainable(trainer.model))
    for callback in callbacks(arguments, training, trainer, targets, prepared):
        trainer.add_callback(callback)
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    if training.use_cpu:
        warn_of_idle_cores(training.world_size)
    return trainer


def load_student(arguments: Any, training: Any, model_config: Any) -> Any:
    """The base in the precision of the settings, its router frozen where that is asked for."""
    from trl import get_quantization_config

    from distill.training_run import student_weights
    from modeling.loading import load_model
    from modeling.trainable import freeze_router

    place, revision = student_weights(training, model_config)
    model = load_model(
        place,
        model_config.dtype,
        revision,
        model_config.attn_implementation,
        quantization_config=get_quantization_config(model_config),
    )
    if arguments.freeze_router:
        freeze_router(model)
    return model


def callbacks(arguments: Any, training: Any, trainer: Any, targets: list[str], prepared: Any) -> list[Any]:
    """What watches the run."""
    from distill.fact_recall import FactRecall
    from modeling.adapters import CheckTargetsLearn
    from modeling.checkpoints import StopWhenNotFinite
    from modeling.packing import CheckRowsApart
    from modeling.progress import ProgressLines
    from modeling.sharding import CheckSharded

    watching: list[Any] = [StopWhenNotFinite(), CheckTargetsLearn(targets), ProgressLines()]
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        watching.insert(0, CheckSharded())
    if training.padding_free:
        rows = sorted(trainer.train_dataset, key=lambda row: len(row["input_ids"]))[:2]
        watching.append(CheckRowsApart(trainer.data_collator, [rows[0], rows[-1]]))
    if arguments.eval_generate:
        watching.append(FactRecall(trainer, prepared.datasets["eval"].to_list()[: arguments.eval_generate]))
    return watching


def warn_of_idle_cores(num_processes: int) -> None:
    """`accelerate launch` sets OMP_NUM_THREADS=1 where it is not told otherwise, which nobody notices."""
    import torch

    num_cores = os.cpu_count() or 1
    if torch.get_num_threads() == 1 and num_processes < num_cores:
        say(f"one thread per process on {num_cores} cores; for all of them start it with "
            f"OMP_NUM_THREADS={num_cores // num_processes}")  # fmt: skip


def say(line: str) -> None:
    """On stderr, once for all processes."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if importlib.util.find_spec("condensery") is None:
        sys.exit("condensery is not installed; type: pip install -e '.[train]'   (in the repository root)")
    sys.exit(main())
