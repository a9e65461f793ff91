"""Training a summarizer without a teacher: GRPO with a masked-span reconstruction reward (SUMONE, FACTS 4).

    accelerate launch reconstruct/grpo.py --config configs/grpo/smollm2_cpu.yaml \\
        --model_name_or_path runs/sft --train_file runs/instances/instances.jsonl --output_dir runs/grpo
    condensery grpo --config ...

The student writes G summaries of each history; a frozen model restores hidden parts of the history from each.
`condensery export` takes the result like that of SFT.
"""

import copy
import importlib.util
import sys
import warnings
from typing import Any

PROG = "condensery grpo"


def main(argv: list[str] | None = None) -> int:
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="transformers"
    )  # about TRL's own defaults
    from trl import GRPOConfig, ModelConfig

    from condensery.files.config import parse_args
    from modeling.training_run import run_stage
    from reconstruct.arguments import GRPOArguments

    settings = parse_args(
        *(GRPOArguments, GRPOConfig, ModelConfig),
        argv=argv,
        prog=PROG,
        description="Train a student on its own summaries, by how well they restore hidden history.",
        example=f"{PROG} --config configs/grpo/smollm2_cpu.yaml --model_name_or_path runs/sft "
        "--train_file instances/instances.jsonl --output_dir runs/grpo",
    )
    return run_stage(PROG, settings, prepare, build_trainer)


def prepare(arguments: Any, training: Any, model_config: Any) -> tuple[Any, Any]:
    """(Prepared, Findings): everything checked, prompts rendered, the batch set in `training`."""
    from modeling.loading import check_student, load_config, load_tokenizer
    from modeling.preparation import Findings, Prepared, plan_run
    from modeling.settings import check_reporting
    from reconstruct.arguments import grpo_problems

    prepared, findings = Prepared(), Findings(grpo_problems(arguments, training, model_config))
    findings.attempt(check_reporting, training.report_to)
    name = model_config.model_name_or_path
    if name is None or training.max_completion_length is None:
        return prepared, findings
    prepared.tokenizer = findings.attempt(load_tokenizer, name, model_config.model_revision)
    if prepared.tokenizer is None:
        return prepared, findings
    findings.attempt(check_student, name)
    load_prompts(arguments, training, prepared, findings)
    num_groups = len(prepared.datasets.get("train", []))
    left_out = num_groups % arguments.groups_per_step
    if num_groups and left_out == num_groups:
        findings.problems.append(
            f"{num_groups} instances are fewer than --groups_per_step {arguments.groups_per_step}; lower it"
        )
    elif num_groups:
        group = training.num_generations
        if training.per_device_train_batch_size % group:
            findings.problems.append(
                f"--per_device_train_batch_size is {training.per_device_train_batch_size}; it must be a "
                f"multiple of --num_generations {group}: a group shares its prompt"
            )
        longest = max(len(ids) for rows in prepared.datasets.values() for ids in rows["prompt"])
        settings = (arguments.groups_per_step * group, training, model_config)
        lengths = [1] * ((num_groups - left_out) * group)
        # A group is one row: its prompt, and each completion after the prompt's last token.
        shared = longest + group * (training.max_completion_length + 1)
        batch = (-(-training.per_device_train_batch_size // group), shared)
        frozen = None
        if arguments.reward == "likelihood":
            frozen = findings.attempt(load_config, arguments.reconstructor)
        longest += training.max_completion_length
        plan_run(prepared, findings, settings, lengths, longest, batch, frozen)
        training.steps_per_generation = training.gradient_accumulation_steps
        training.generation_batch_size = arguments.groups_per_step * group
    return prepared, findings


def load_prompts(arguments: Any, training: Any, prepared: Any, findings: Any) -> None:
    """The instances of all splits, and rows of `prompt`, as a server's tokens, with the instance's number."""
    from datasets import Dataset

    from condensery.files.jsonl import read_records
    from condensery.prompt import render_prompt
    from modeling.chat_template import prompt_ids, thinking_switch
    from modeling.progress import show_ids
    from reconstruct.instance import Instance

    switch = findings.attempt(thinking_switch, prepared.tokenizer, arguments.thinking)
    room = arguments.max_length - training.max_completion_length
    instances: list[Instance] = prepared.instances
    questions: dict[str, set[str]] = {}
    for split, path in arguments.files.items():
        read = findings.attempt(lambda path: list(read_records(path, Instance)), path) or []
        rows: list[dict[str, Any]] = []
        for line, instance in enumerate(read[: arguments.limit], start=1):
            ids = prompt_ids(
                prepared.tokenizer, render_prompt(instance.compaction, arguments.prompt_template), switch
            )
            if len(ids) > room:
                findings.problems.append(
                    f"{path}:{line}: too_long: {len(ids)} tokens of prompt, at most {room}: --max_length "
                    "less --max_completion_length"
                )
            rows.append({"prompt": ids, "instance": len(instances)})
            instances.append(instance)
        questions[split] = {instances[row["instance"]].compaction.question_id for row in rows}
        if rows:
            prepared.datasets[split] = Dataset.from_list(rows)
            longest = max(len(row["prompt"]) for row in rows)
            prepared.notes.append(f"{split}: {len(rows)} instances, longest prompt {longest} tokens")
        elif path.is_file():
            findings.problems.append(f"{path} holds no instances; `condensery instances` writes them")
    if shared := questions["train"] & questions.get("eval", set()):
        findings.problems.append(f"{len(shared)} questions stand in both files, such as {min(shared)!r}")
    if "train" in prepared.datasets:
        shown = show_ids(prepared.tokenizer, prepared.datasets["train"][0]["prompt"])
        prepared.notes.append(f"{shown}>>> the student writes {training.num_generations} summaries")


def build_trainer(arguments: Any, training: Any, model_config: Any, prepared: Any) -> Any:
    """TRL's trainer with our reward, a group's prompt shared."""
    from trl import get_peft_config

    from modeling.generation import stop_ids
    from modeling.lm_head import score_supervised_positions_only
    from modeling.loading import load_model
    from modeling.sampling import SeedEachStep
    from modeling.trainer import watch
    from modeling.training_run import student_weights
    from reconstruct.grpo_trainer import SharedPromptTrainer
    from reconstruct.likelihood import load_reconstructor
    from reconstruct.rewards import ReconstructionReward, measure_generated, measure_likelihood

    score_supervised_positions_only()
    settings = copy.copy(training)
    settings.logging_nan_inf_filter = False  # it hides a loss that is no number behind earlier ones
    if arguments.reward == "generate":
        measure = measure_generated(arguments)
    else:
        measure = measure_likelihood(load_reconstructor(arguments.reconstructor), arguments)
    place, revision = student_weights(training, model_config)
    model = load_model(place, model_config.dtype, revision, model_config.attn_implementation)
    stops = stop_ids(model, prepared.tokenizer)
    reward = ReconstructionReward(
        arguments, training.max_completion_length, stops, prepared.instances, measure
    )
    trainer = SharedPromptTrainer(
        model=model,
        reward_funcs=reward,
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
