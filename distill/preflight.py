"""Everything that can be known to be wrong with a fine-tuning run, before hours are spent, listed at once.

    condensery preflight --config configs/sft/qwen3_30b_a3b.yaml \\
        --train_file pairs/train.jsonl --eval_file pairs/held_out.jsonl --output_dir runs/sft

It takes the settings of `condensery sft`, which begins with the same checks and stops at what they find: rows
(`modeling/row_checks.py`), settings, batches, the model's files, memory, disk.
"""

import sys
from typing import Any

from condensery.files.jsonl import BadLine
from distill.arguments import SFTArguments, StudentArguments, parse_sft, sft_problems
from modeling.chat_template import RenderedPair
from modeling.preparation import Findings, Prepared, plan_run
from modeling.settings import check_reporting

PROG = "condensery preflight"


def main(argv: list[str] | None = None) -> int:
    """0 when the run may start, 1 when something is wrong with it."""
    from modeling.progress import quiet_unless_terminal

    description = "Check a fine-tuning run, rows and all, and list everything that is wrong with it."
    arguments, training, model_config = parse_sft(argv, PROG, description)
    quiet_unless_terminal()
    prepared, findings = prepare(arguments, training, model_config)
    print("\n".join([*findings.problems, *prepared.notes]))
    if findings.problems:
        print(f"{PROG}: error: nothing trains until this is settled", file=sys.stderr)
    return 1 if findings.problems else 0


def prepare(arguments: SFTArguments, training: Any, model_config: Any) -> tuple[Prepared, Findings]:
    """Check everything and render the rows; sets the accumulation in `training`."""
    from datasets import Dataset

    from modeling.loading import check_student, load_tokenizer
    from modeling.progress import show_sample

    prepared, findings = Prepared(), Findings(sft_problems(arguments, training, model_config))
    findings.attempt(check_reporting, training.report_to)
    name = model_config.model_name_or_path
    if name is None:
        return prepared, findings
    prepared.tokenizer = findings.attempt(load_tokenizer, name, model_config.model_revision)
    if prepared.tokenizer is None:
        return prepared, findings
    findings.attempt(check_student, name)
    splits, note = render_splits(arguments, training.max_length, prepared.tokenizer, findings)
    prepared.notes.append(note)
    for split, pairs in splits.items():
        rows = [{"input_ids": pair.input_ids, "labels": pair.labels} for pair in pairs.values()]
        prepared.datasets[split] = Dataset.from_list(rows)
    if "train" in splits:
        prepared.notes.append(show_sample(prepared.tokenizer, next(iter(splits["train"].values()))))
        lengths = [len(pair.input_ids) for pair in splits["train"].values()]
        longest = max(len(pair.input_ids) for pairs in splits.values() for pair in pairs.values())
        settings = (arguments.global_batch_size, training, model_config)
        plan_run(prepared, findings, settings, lengths, longest)
    return prepared, findings


def render_splits(
    arguments: StudentArguments, max_length: int | None, tokenizer: Any, findings: Findings
) -> tuple[dict[str, dict[str, RenderedPair]], str]:
    """The good rows by split and place (only splits that have some), and a line on all of them; what is wrong
    with the others goes to the findings."""
    from modeling.pair_rows import leaked_questions, read_pairs
    from modeling.row_checks import check_rows

    rows: dict[str, list[tuple[str, dict | BadLine]]] = {
        split: findings.attempt(read_pairs, path, arguments.limit) or []
        for split, path in arguments.files.items()
    }
    if len({path.resolve() for path in arguments.files.values()}) < len(arguments.files):
        findings.problems.append(f"--eval_file {arguments.eval_file} is the --train_file itself")
        rows.pop("eval")
    together = [row for of_split in rows.values() for row in of_split]
    checked = check_rows(together, tokenizer, max_length, arguments.thinking)
    checked.problems += leaked_questions(rows["train"], rows.get("eval", []))
    findings.problems += checked.complaints()
    good = {
        split: {place: checked.pairs[place] for place, _ in of_split if place in checked.pairs}
        for split, of_split in rows.items()
    }
    return {split: pairs for split, pairs in good.items() if pairs}, checked.summary()
