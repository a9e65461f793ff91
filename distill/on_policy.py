"""On-policy distillation of a summarizer, with TRL's DistillationTrainer: an optional stage after SFT.

    accelerate launch distill/on_policy.py --config configs/on_policy/smollm2_cpu.yaml \\
        --model_name_or_path runs/sft --teacher_model_name_or_path runs/teacher \\
        --train_file runs/pairs/train.jsonl --output_dir runs/on_policy
    condensery on-policy --config ...

The student writes a summary for each prompt; the teacher, of the same vocabulary, scores every token of it.
The summaries in the pairs are not trained on. `condensery export` takes the result like that of SFT.
"""

import copy
import importlib.util
import sys
import warnings
from typing import Any

PROG = "condensery on-policy"


def main(argv: list[str] | None = None) -> int:
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="transformers"
    )  # about TRL's own defaults
    from trl import DistillationConfig, ModelConfig

    from condensery.files.config import parse_args
    from distill.arguments import OnPolicyArguments
    from modeling.training_run import run_stage

    settings = parse_args(
        *(OnPolicyArguments, DistillationConfig, ModelConfig),
        argv=argv,
        prog=PROG,
        description="Train a student on its own summaries, each token scored by a teacher of its vocabulary.",
        example=f"{PROG} --config configs/on_policy/smollm2_cpu.yaml --model_name_or_path runs/sft "
        "--teacher_model_name_or_path runs/teacher --train_file pairs/train.jsonl --output_dir runs/tuned",
    )
    return run_stage(PROG, settings, prepare, build_trainer)


def prepare(arguments: Any, training: Any, model_config: Any) -> tuple[Any, Any]:
    """(Prepared, Findings): everything checked, prompts rendered, the accumulation set in `training`."""
    from distill.arguments import on_policy_problems
    from distill.teacher import config_of
    from modeling.preparation import Findings, Prepared, plan_run
    from modeling.settings import check_reporting

    prepared, findings = Prepared(), Findings(on_policy_problems(arguments, training, model_config))
    findings.attempt(check_reporting, training.report_to)
    if None in (model_config.model_name_or_path, training.teacher_model_name_or_path):
        return prepared, findings
    prepared.tokenizer = findings.attempt(check_models, training, model_config)
    if prepared.tokenizer is None:
        return prepared, findings
    load_prompts(arguments, training, prepared, findings)
    num_rows = len(prepared.datasets.get("train", []))
    left_out = num_rows % arguments.global_batch_size if arguments.global_batch_size > 0 else 0
    if num_rows and left_out == num_rows:
        findings.problems.append(
            f"{num_rows} rows are fewer than --global_batch_size {arguments.global_batch_size}; lower it"
        )
    elif num_rows:
        # Generation works on whole batches, and pads prompts on its own.
        settings = (arguments.global_batch_size, training, model_config)
        longest = max(len(ids) for rows in prepared.datasets.values() for ids in rows["prompt"])
        lengths = [1] * (num_rows - left_out)
        teacher = config_of(training.teacher_model_name_or_path, training.teacher_model_revision)
        longest += training.max_completion_length
        plan_run(prepared, findings, settings, lengths, longest, frozen=teacher)
    if left_out:
        prepared.notes.append(
            f"each epoch leaves out {left_out} of {num_rows} rows, others each time: they fill no batch"
        )
    return prepared, findings


def check_models(training: Any, model_config: Any) -> Any:
    """The student's tokenizer. Raises ValueError where student and teacher cannot be had, or not together."""
    from distill.teacher import check_same_head, check_same_vocabulary, config_of
    from modeling.loading import check_student, check_weights, load_tokenizer

    student, teacher = model_config.model_name_or_path, training.teacher_model_name_or_path
    revisions = model_config.model_revision, training.teacher_model_revision
    tokenizer = load_tokenizer(student, revisions[0])
    check_same_vocabulary(tokenizer, load_tokenizer(teacher, revisions[1]), (student, teacher))
    check_student(student)
    check_weights(teacher)
    check_same_head(config_of(student, revisions[0]), config_of(teacher, revisions[1]), (student, teacher))
    return tokenizer


def load_prompts(arguments: Any, training: Any, prepared: Any, findings: Any) -> None:
    """The checked `prompt`s by split, as a server's tokens."""
    from datasets import Dataset

    from distill.preflight import render_splits
    from modeling.progress import show_prompt

    splits, note = render_splits(arguments, None, prepared.tokenizer, findings)
    room = arguments.max_length - training.max_completion_length
    too_long = [
        f"{place}: too_long: {pair.num_prompt_tokens} tokens of prompt, at most {room}"
        for pairs in splits.values()
        for place, pair in pairs.items()
        if pair.num_prompt_tokens > room
    ]
    if too_long:
        findings.problems += [
            *too_long,
            f"{len(too_long)} x too_long: --max_length {arguments.max_length} less --max_completion_length "
            f"{training.max_completion_length} is {room}",
        ]
    prepared.notes.append(note)
    for split, pairs in splits.items():
        prepared.datasets[split] = Dataset.from_list([{"prompt": pair.prompt_ids} for pair in pairs.values()])
    if "train" in splits:
        shown = show_prompt(prepared.tokenizer, next(iter(splits["train"].values())))
        prepared.notes.append(f"{shown}>>> the student writes, the teacher scores each token")


def build_trainer(arguments: Any, training: Any, model_config: Any, prepared: Any) -> Any:
    """TRL's trainer with student and teacher."""
    from trl import get_peft_config

    from distill.on_policy_trainer import OnPolicyTrainer
    from modeling.loading import load_model
    from modeling.precision import computed_dtype
    from modeling.sampling import SeedEachStep
    from modeling.trainer import watch
    from modeling.training_run import student_weights

    settings = copy.copy(training)
    settings.logging_nan_inf_filter = False  # it hides a loss that is no number behind earlier ones
    place, revision = student_weights(training, model_config)
    trainer = OnPolicyTrainer(
        model=load_model(place, model_config.dtype, revision, model_config.attn_implementation),
        teacher_model=load_model(
            training.teacher_model_name_or_path,
            computed_dtype("auto"),
            training.teacher_model_revision,
            model_config.attn_implementation,
        ),
        args=settings,
        train_dataset=prepared.datasets["train"],
        eval_dataset=prepared.datasets.get("eval"),
        processing_class=prepared.tokenizer,
        peft_config=get_peft_config(model_config),
    )
    return watch(trainer, model_config, SeedEachStep())


if __name__ == "__main__":
    if importlib.util.find_spec("condensery") is None:
        sys.exit("condensery is not installed; type: pip install -e '.[train]'   (in the repository root)")
    sys.exit(main())
