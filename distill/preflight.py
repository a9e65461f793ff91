"""Everything that can be known to be wrong with a fine-tuning run, before hours are spent, listed at once.

    condensery preflight --config configs/sft/qwen3_30b_a3b.yaml \\
        --train_file pairs/train.jsonl --eval_file pairs/held_out.jsonl --output_dir runs/sft

It takes the settings of `condensery sft`, which begins with the same checks and stops at what they find: rows
(`modeling/row_checks.py`), settings, batches, the model's files, memory, disk.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distill.arguments import SFTArguments, setting_problems

PROG = "condensery preflight"
Result = TypeVar("Result")


@dataclass
class Prepared:
    """A run whose settings and rows are fit to train: rendered rows by split, and the plans to print."""

    tokenizer: Any = None
    datasets: dict[str, Any] = field(default_factory=dict)
    batches: Any = None
    memory: Any = None
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


def main(argv: list[str] | None = None) -> int:
    """0 when the run may start, 1 when something is wrong with it."""
    from trl import ModelConfig, SFTConfig

    from condensery.files.config import parse_args
    from modeling.progress import quiet_unless_terminal

    arguments, training, model_config = parse_args(
        *(SFTArguments, SFTConfig, ModelConfig),
        argv=argv,
        prog=PROG,
        description="Check a fine-tuning run, rows and all, and list everything that is wrong with it.",
        example=f"{PROG} --config configs/sft/smollm2_cpu.yaml --train_file pairs/train.jsonl "
        f"--output_dir runs/sft",
    )
    quiet_unless_terminal()
    prepared, problems = prepare(arguments, training, model_config)
    print("\n".join([*problems, *prepared.notes]))
    if problems:
        print(f"{PROG}: error: nothing trains until this is settled", file=sys.stderr)
    return 1 if problems else 0


def prepare(arguments: SFTArguments, training: Any, model_config: Any) -> tuple[Prepared, list[str]]:
    """Check everything and render the rows; sets the accumulation in `training`. The list: what is wrong."""
    from distill.disk import check_disk
    from distill.memory import check_memory
    from modeling.loading import check_weights, load_tokenizer

    prepared, findings = Prepared(), Findings(setting_problems(arguments, training, model_config))
    findings.attempt(check_reporting, training.report_to)
    name = model_config.model_name_or_path
    if name is None:
        findings.problems.append(
            "--model_name_or_path is missing: a hub name, a folder, smollm2-135m-instruct"
        )
        return prepared, findings.problems
    prepared.tokenizer = findings.attempt(load_tokenizer, name, model_config.model_revision)
    if prepared.tokenizer is None:
        return prepared, findings.problems
    findings.attempt(check_weights, name)
    load_rows(arguments, training, prepared, findings)
    if "train" in prepared.datasets:
        prepared.batches = findings.attempt(plan_steps, arguments, training, prepared)
    if prepared.batches:
        longest = max(map(max, lengths_of(prepared).values()))
        prepared.memory = findings.attempt(check_memory, training, model_config, longest)
    if prepared.batches and prepared.memory:
        disk = findings.attempt(check_disk, training, prepared.memory, prepared.batches.num_steps)
        prepared.notes += [str(plan) for plan in (prepared.batches, prepared.memory, disk) if plan]
    return prepared, findings.problems


def load_rows(arguments: SFTArguments, training: Any, prepared: Prepared, findings: Findings) -> None:
    """Rendered `input_ids` and `labels` by split; what is wrong with rows goes to the findings."""
    from datasets import Dataset

    from modeling.pair_rows import leaked_questions, read_pairs
    from modeling.progress import show_sample
    from modeling.row_checks import check_rows

    files = {"train": arguments.train_file, "eval": arguments.eval_file}
    rows = {
        split: findings.attempt(read_pairs, path, arguments.limit) or []
        for split, path in files.items()
        if path
    }
    together = [row for of_split in rows.values() for row in of_split]
    checked = check_rows(together, prepared.tokenizer, training.max_length, arguments.thinking)
    checked.problems += leaked_questions(rows["train"], rows.get("eval", []))
    findings.problems += checked.complaints()
    prepared.notes.append(checked.summary())
    for split, of_split in rows.items():
        pairs = [checked.pairs[place] for place, _ in of_split if place in checked.pairs]
        if pairs:
            prepared.datasets[split] = Dataset.from_list(
                [{"input_ids": pair.input_ids, "labels": pair.labels} for pair in pairs]
            )
    if checked.pairs:
        prepared.notes.append(show_sample(prepared.tokenizer, next(iter(checked.pairs.values()))))


def lengths_of(prepared: Prepared) -> dict[str, list[int]]:
    """Tokens of each row, by split."""
    return {split: list(map(len, rows["input_ids"])) for split, rows in prepared.datasets.items()}


def plan_steps(arguments: SFTArguments, training: Any, prepared: Prepared) -> Any:
    """Set the accumulation that makes the global batch, on however many processes this runs."""
    from modeling.batches import plan_batches

    plan = plan_batches(
        arguments.global_batch_size,
        training.per_device_train_batch_size,
        training.world_size,
        lengths_of(prepared).get("train", []),
        training.num_train_epochs,
        training.max_steps,
    )
    training.gradient_accumulation_steps = plan.gradient_accumulation_steps
    return plan


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
