"""What a summarizer learns without a teacher, step by step: checkpoints of GRPO runs on held-out contexts.

    condensery grpo --config configs/grpo/smollm2_cpu.yaml --model_name_or_path runs/sft \\
        --train_file runs/instances/instances.jsonl --output_dir runs/grpo --save_total_limit 100
    python benchmarks/grpo_curves.py --runs from_sft=runs/grpo --instances runs/held_out/instances.jsonl \\
        --output_dir runs/curves

Of each checkpoint, and of the model that the run started from (step 0), the greedy summary of each context:
quality (likelihood, with contrast) in [0, 2], must-keep recall, other facts carried over, statements that the
history does not bear out, tokens. Intervals are bootstrapped over contexts, those of differences to step 0
over the same contexts. `rows.jsonl` has each summary of each model, and a run that was stopped goes on from
there; `curves.json` has the figures, `curves.png` shows them.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from condensery.facts import num_distractors, recall, unsupported
from condensery.files.config import parse_args
from condensery.files.jsonl import read_jsonl, read_records, write_jsonl
from condensery.files.run_directory import read_run, write_json
from condensery.prompt import history_text, render_prompt, unescape
from condensery.summary import parse_summary
from condensery.thinking import Thinking
from evaluation.aggregate import LEVEL, NUM_RESAMPLES, ratio_with_interval
from modeling.chat_template import thinking_switch
from modeling.generation import generate
from modeling.loading import load_model, load_tokenizer
from modeling.precision import computed_dtype
from reconstruct.instance import Instance
from reconstruct.likelihood import Reconstructor, load_reconstructor, quality_of, score_summaries

matplotlib.use("Agg")
import matplotlib.pyplot as plt

CONTRAST = 0.5
# Each is numerator / denominator, both summed over contexts; an answer that cannot be read keeps nothing.
METRICS = {
    "quality": ("quality", "one"),
    "must_keep_recall": ("num_kept", "num_must_keep"),
    "other_facts": ("num_other", "one"),
    "unsupported": ("num_unsupported", "num_statements"),
    "tokens": ("num_tokens", "one"),
    "parsed": ("parsed", "one"),
}


@dataclass
class Config:
    """Runs of `condensery grpo` with their checkpoints, and contexts that none of them has seen."""

    runs: list[str] = field(metadata={"help": "NAME=DIRECTORY of each run"})
    instances: list[Path] = field(metadata={"help": "held-out instances, with facts (JSONL)"})
    output_dir: Path = field(metadata={"help": "where rows.jsonl and curves.json go"})
    reconstructor: str = field(default="smollm2-135m-instruct", metadata={"help": "the frozen model"})
    prompt_template: str = field(default="compact_v1", metadata={"help": "as in training"})
    thinking: Thinking = field(default="none", metadata={"help": "as in training"})
    max_new_tokens: int = field(default=128, metadata={"help": "budget of a summary", "minimum": 1})
    batch_size: int = field(default=8, metadata={"help": "prompts answered at once", "minimum": 1})
    limit: int | None = field(default=None, metadata={"help": "only the first of each file", "minimum": 1})
    seed: int = field(default=0, metadata={"help": "of the bootstrap"})


def models_of(run: Path) -> Iterator[tuple[int, str]]:
    """(step, model): what the run started from, and its checkpoints in order."""
    yield 0, read_run(run / "run.json")["config"]["model_name_or_path"]
    places = sorted(run.glob("checkpoint-*"), key=lambda place: int(place.name.partition("-")[2]))
    yield from ((int(place.name.partition("-")[2]), str(place)) for place in places)


def measure(
    config: Config, instances: list[Instance], model: str, reconstructor: Reconstructor
) -> list[dict[str, Any]]:
    """Counts of each context, as METRICS names them, and the answer."""
    tokenizer = load_tokenizer(model)
    prompts = [render_prompt(one.compaction, config.prompt_template) for one in instances]
    switch = thinking_switch(tokenizer, config.thinking)
    answers = generate(
        *(
            load_model(model, computed_dtype("bfloat16")),
            tokenizer,
            prompts,
            config.max_new_tokens,
            config.batch_size,
        ),
        enable_thinking=switch,
        label=model,
    )
    rows = []
    for instance, answer in zip(instances, answers, strict=True):
        text = parse_summary(answer.text, answer.finish_reason).text
        row: dict[str, Any] = {"instance": instance.id, "answer": answer.text, "one": 1, "quality": 0.0}
        row |= {"num_tokens": answer.num_tokens, "parsed": int(text is not None)}
        if text is not None:
            [scores] = score_summaries(reconstructor, instance, [text], with_contrast=True)
            row["quality"] = quality_of(scores, CONTRAST)
        plain, facts = unescape(text or ""), instance.compaction.facts or []
        row["num_kept"], row["num_must_keep"] = recall(plain, facts)
        row["num_other"] = num_distractors(plain, facts)
        subjects = sorted({fact.subject for fact in facts})
        history = history_text(instance.compaction)
        row["num_unsupported"], row["num_statements"] = unsupported(plain, history, subjects)
        rows.append(row)
    return rows


def difference(
    before: list[dict[str, Any]], after: list[dict[str, Any]], metric: str, seed: int
) -> list[float]:
    """The interval of after - before over the same contexts."""
    top, bottom = METRICS[metric]
    terms = np.array([[(row[top], row[bottom]) for row in rows] for rows in (before, after)], float)
    picks = np.random.default_rng(seed).integers(0, terms.shape[1], (NUM_RESAMPLES, terms.shape[1]))
    sums = terms[:, picks].sum(axis=2)  # (2, resamples, 2)
    sums = sums[:, (sums[:, :, 1] > 0).all(axis=0)]
    change = sums[1, :, 0] / sums[1, :, 1] - sums[0, :, 0] / sums[0, :, 1]
    return [round(float(edge), 3) for edge in np.quantile(change, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]


def figures(rows: list[dict[str, Any]], start: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    result: dict[str, Any] = {"num_rows": len(rows)}
    for metric, (top, bottom) in METRICS.items():
        terms = [row[top] for row in rows], [row[bottom] for row in rows]
        result[metric], result[f"{metric}_ci"] = ratio_with_interval(*terms, seed)
        if rows is not start and result[metric] is not None and any(row[bottom] for row in start):
            result[f"{metric}_change_ci"] = difference(start, rows, metric, seed)
    return result


def table(cases: list[dict[str, Any]]) -> str:
    """One line a checkpoint, as Markdown."""
    lines = ["| run | step | " + " | ".join(METRICS) + " |", "|---" * (len(METRICS) + 2) + "|"]
    for case in cases:
        cells = [
            "-" if case[name] is None else "{:.3g} [{:.3g}, {:.3g}]".format(case[name], *case[f"{name}_ci"])
            for name in METRICS
        ]
        lines.append(f"| {case['run']} | {case['step']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(cases: list[dict[str, Any]], path: Path) -> None:
    """Each metric by step, a line for each run, with intervals."""
    figure, panels = plt.subplots(2, 3, figsize=(11, 6), sharex=True)
    for metric, axes in zip(METRICS, panels.flat, strict=True):
        for run in dict.fromkeys(case["run"] for case in cases):
            points = [case for case in cases if case["run"] == run and case[metric] is not None]
            if points:
                steps, values = zip(*((case["step"], case[metric]) for case in points), strict=True)
                low, high = zip(*(case[f"{metric}_ci"] for case in points), strict=True)
                axes.plot(steps, values, marker="o", label=run)
                axes.fill_between(steps, low, high, alpha=0.2)
        axes.set(title=metric.replace("_", " "), xlabel="step")
        axes.grid(alpha=0.3)
    panels.flat[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    config = parse_args(Config, argv=argv, prog="benchmarks/grpo_curves.py", description=__doc__)
    instances = [
        one for path in config.instances for one in list(read_records(path, Instance))[: config.limit]
    ]
    config.output_dir.mkdir(parents=True, exist_ok=True)
    place = config.output_dir / "rows.jsonl"
    known = list(read_jsonl(place)) if place.is_file() else []
    reconstructor = load_reconstructor(config.reconstructor)
    cases = []
    for named in config.runs:
        name, _, run = named.partition("=")
        start: list[dict[str, Any]] = []
        for step, model in models_of(Path(run)):
            rows = [row for row in known if row["model"] == model]
            if [row["instance"] for row in rows] != [one.id for one in instances]:
                rows = [{"model": model, **row} for row in measure(config, instances, model, reconstructor)]
                known += rows
                write_jsonl(place, known)
            start = start or rows
            cases.append({"run": name, "step": step, **figures(rows, start, config.seed)})
            print(table(cases[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(cases), file=sys.stderr)
    write_json(config.output_dir / "curves.json", cases)
    plot(cases, config.output_dir / "curves.png")
    print(json.dumps({"benchmark": "grpo_curves", "rival": "the model at step 0", "cases": cases}))


if __name__ == "__main__":
    main()
