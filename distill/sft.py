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
import sys
from typing import Any

PROG = "condensery sft"


def main(argv: list[str] | None = None) -> int:
    from distill.arguments import parse_sft
    from distill.preflight import prepare
    from modeling.training_run import run_stage

    description = "Fine-tune a student on (conversation, summary) pairs, fully or with LoRA."
    settings = parse_sft(argv, PROG, description)
    return run_stage(PROG, settings, prepare, build_trainer)


def build_trainer(arguments: Any, training: Any, model_config: Any, prepared: Any) -> Any:
    """TRL's trainer on rows that are tokens already."""
    from trl import SFTTrainer, get_peft_config

    from distill.fact_recall import FactRecall
    from modeling.lm_head import score_supervised_positions_only
    from modeling.packing import CheckRowsApart
    from modeling.trainer import watch

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
    callbacks: list[Any] = []
    if training.padding_free:
        rows = sorted(trainer.train_dataset, key=lambda row: len(row["input_ids"]))[:2]
        callbacks.append(CheckRowsApart(trainer.data_collator, [rows[0], rows[-1]]))
    if arguments.eval_generate:
        callbacks.append(FactRecall(trainer, prepared.datasets["eval"].to_list()[: arguments.eval_generate]))
    return watch(trainer, model_config, *callbacks)


def load_student(arguments: Any, training: Any, model_config: Any) -> Any:
    """The base in the precision of the settings, its router frozen where that is asked for."""
    from trl import get_quantization_config

    from modeling.loading import load_model
    from modeling.trainable import freeze_router
    from modeling.training_run import student_weights

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


if __name__ == "__main__":
    if importlib.util.find_spec("condensery") is None:
        sys.exit("condensery is not installed; type: pip install -e '.[train]'   (in the repository root)")
    sys.exit(main())
