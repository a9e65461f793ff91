"""Compare summarizers on held-out compactions: base, trained, teacher and mechanical baselines, side by side.

    condensery evaluate --compactions en=held_out/compactions.jsonl --pairs held_out.jsonl \\
        --base smollm2-135m-instruct --trained runs/sft --output_dir runs/evaluation
"""

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import write_jsonl
from condensery.files.run_directory import (
    check_same_run,
    describe_run,
    fingerprint,
    open_run_directory,
    write_json,
)
from condensery.summary import Summary
from evaluation.aggregate import aggregate
from evaluation.answers import Row, collect_answers, load_rows
from evaluation.evaluate_config import EvaluateConfig, read_log_history
from evaluation.plots import plot_loss, plot_recall
from evaluation.report import write_report
from evaluation.scoring import Score, score_summary

PROG = "condensery evaluate"
SHAPES_NO_ANSWER = {"log_history", "seed", "batch_size"}


def score_all(answers: dict[str, list[dict]], rows: list[Row], tokenizer: Any) -> dict[str, list[Score]]:
    return {
        name: [
            score_summary(
                Summary(r["summary"], r["failure"]), row.compaction, row.slice, tokenizer, row.reference
            )
            for r, row in zip(records, rows)
        ]
        for name, records in answers.items()
    }


def figures_of(scores: list[Score], languages: list[str], seed: int) -> dict:
    """The figures of one model: over the rows of the most frequent language, and per slice."""
    main = Counter(languages).most_common(1)[0][0]
    figures = aggregate([s for s, language in zip(scores, languages) if language == main], seed)
    groups = {score.slice: [s for s in scores if s.slice == score.slice] for score in scores}
    return figures | {"slices": {name: aggregate(group, seed) for name, group in groups.items()}}


def compare(config: EvaluateConfig, directory: Path, rows: list[Row]) -> dict:
    """Generate, score, and write answers.jsonl, report.json, report.md and the plots; returns the report."""
    from modeling.loading import load_tokenizer

    tokenizer = load_tokenizer(config.trained or config.base or "")
    answers = collect_answers(config, rows, tokenizer, directory)
    scores = score_all(answers, rows, tokenizer)
    languages = [row.compaction.language for row in rows]
    report = {
        "models": {name: figures_of(scores[name], languages, config.seed) for name in scores},
        "data": {
            "compactions": {entry: fingerprint(entry.rpartition("=")[2]) for entry in config.compactions},
            "num_rows": len(rows),
            "slices": dict(Counter(row.slice for row in rows)),
            "main_language": Counter(languages).most_common(1)[0][0],
        },
        "run": resolved_config(config),
    }
    write_jsonl(
        directory / "answers.jsonl",
        (
            {"compaction_id": row.compaction.id, "slice": row.slice, "model": name} | record
            | {"scores": dataclasses.asdict(score)}
            for name, records in answers.items()
            for row, record, score in zip(rows, records, scores[name])
        ),
    )  # fmt: skip
    write_json(directory / "report.json", report)
    plot_recall(report, directory / "recall.png")
    if config.log_history:
        plot_loss(read_log_history(config.log_history), directory / "loss.png")
    write_report(
        directory / "report.md",
        report,
        rows[0].compaction,
        {n: a[0] for n, a in answers.items()},
        bool(config.log_history),
    )
    return report


def warn_of_budget(config: EvaluateConfig, directory: Path) -> None:
    """A trained summarizer whose answers are cut off is not bad, but asked wrongly."""
    trained = json.loads((directory / "report.json").read_text())["models"].get("trained")
    if trained and trained["failures"].get("length", 0) > trained["num_rows"] / 2:
        print(
            f"warning: most answers were cut at {config.max_new_tokens} tokens; raise --max_new_tokens",
            file=sys.stderr,
        )


def check_models(config: EvaluateConfig) -> None:
    """Raises ValueError before anything is written if a model is not there, not whole, or cannot chat."""
    from modeling.loading import check_weights, load_tokenizer

    for name in filter(None, [config.base, config.trained]):
        load_tokenizer(name)
        check_weights(name)


def main(argv: Sequence[str] | None = None) -> int:
    config = parse_args(
        EvaluateConfig,
        argv=argv,
        prog=PROG,
        description="Compare summarizers on held-out compactions.",
        example="condensery evaluate --compactions held_out/compactions.jsonl --base BASE --trained runs/sft "
        "--output_dir runs/evaluation",
    )
    try:
        rows = load_rows(config)
        if config.dry_run:
            models = " and ".join(filter(None, [config.base, config.trained]))
            print(f"would ask {models} for {len(rows)} summaries each; nothing was started")
            return 0
        check_models(config)
        directory = open_run_directory(config.output_dir, config.resume)
        check_same_run(directory, resolved_config(config), config.inputs(), SHAPES_NO_ANSWER)
        describe_run(directory, resolved_config(config), config.inputs(), {"rows": len(rows)})
        compare(config, directory, rows)
    except (OSError, ValueError) as error:
        fail(PROG, error)
    warn_of_budget(config, directory)
    print((directory / "report.md").read_text().split("\n## ")[1].partition("\n")[2].strip())
    print(f"\n{directory / 'report.md'}")
    return 0
