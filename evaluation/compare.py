"""Compare summarizers on held-out compactions: base, trained, teacher and mechanical baselines, side by side.

    condensery evaluate --compactions en=held_out/compactions.jsonl --pairs held_out.jsonl \\
        --base smollm2-135m-instruct --trained runs/sft --output_dir runs/evaluation
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from condensery.compaction import Compaction
from condensery.files.config import fail, parse_args
from condensery.files.jsonl import read_jsonl, write_jsonl
from condensery.files.run_directory import describe_run, fingerprint, open_run_directory, write_json
from condensery.prompt import load_template, render_prompt
from condensery.summary import Summary, parse_summary
from evaluation.aggregate import aggregate
from evaluation.baselines import keep_newest, observation_masking
from evaluation.plots import plot_loss, plot_recall
from evaluation.report import write_report
from evaluation.scoring import Score, score_summary

PROG = "condensery evaluate"


@dataclasses.dataclass
class EvaluateConfig:
    """`compactions` are files, each `name=path` to report it as a slice of its own. `pairs` hold the
    teacher's answers.
    """

    compactions: list[str]
    output_dir: str
    pairs: list[str] = dataclasses.field(default_factory=list)
    base: str | None = None
    trained: str | None = None
    prompt_template: str = "compact_v1"
    max_new_tokens: int = 128
    batch_size: int = 8
    dtype: str = "auto"
    limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.base and not self.trained:
            raise ValueError("nothing to compare: give --base and --trained, each a model name or folder")
        load_template(self.prompt_template)
        for entry in [*self.compactions, *self.pairs]:
            if not Path(entry.rpartition("=")[2]).is_file():
                raise ValueError(f"no file {entry.rpartition('=')[2]}")


@dataclasses.dataclass(frozen=True)
class Row:
    """A compaction to summarize, the slices it counts in, and the teacher's summary where there is one."""

    compaction: Compaction
    slice: str
    reference: str | None


def load_rows(config: EvaluateConfig) -> list[Row]:
    """Held-out rows in file order. Raises ValueError for an empty set or a row that is no compaction."""
    references = {}
    for path in config.pairs:
        for pair in read_jsonl(path):
            references[pair["compaction_id"]] = parse_summary(pair["completion"][0]["content"]).text
    rows = []
    for entry in config.compactions:
        name, _, path = entry.rpartition("=")
        compactions = [Compaction.model_validate(row) for row in read_jsonl(path)][: config.limit]
        rows += [
            Row(compaction, name or compaction.language, references.get(compaction.id))
            for compaction in compactions
        ]
    if not rows:
        raise ValueError(f"no compaction in {', '.join(config.compactions)}")
    return rows


def answer_with(name_or_path: str, rows: list[Row], config: EvaluateConfig, label: str) -> list[dict]:
    """Greedy answers of a local model: one record a row, with raw text, tokens and the parser's verdict."""
    from modeling.generation import generate
    from modeling.loading import load_model_and_tokenizer

    model, tokenizer = load_model_and_tokenizer(name_or_path, config.dtype)
    prompts = [render_prompt(row.compaction, config.prompt_template) for row in rows]
    answers = generate(model, tokenizer, prompts, config.max_new_tokens, config.batch_size, label=label)
    records = []
    for answer in answers:
        summary = parse_summary(answer.text, answer.finish_reason)
        records.append(
            {"raw": answer.text, "finish_reason": answer.finish_reason, "summary": summary.text,
             "failure": summary.failure}
        )  # fmt: skip
    return records


def mechanical(rows: list[Row], budgets: list[int], tokenizer: Any) -> dict[str, list[dict]]:
    """What the mechanical baselines keep, each row with as many tokens as the summary it is compared with."""
    return {
        name: [
            {"summary": keep(row.compaction, budget, tokenizer), "failure": None}
            for row, budget in zip(rows, budgets)
        ]
        for name, keep in (("keep_newest", keep_newest), ("observation_masking", observation_masking))
    }


def equal_budgets(records: list[dict], rows: list[Row], tokenizer: Any) -> list[int]:
    """Tokens of each accepted summary; a row whose summary failed gets the mean."""
    lengths = [
        len(tokenizer.encode(r["summary"], add_special_tokens=False)) if r["summary"] else 0 for r in records
    ]
    accepted = [length for length in lengths if length]
    mean = round(sum(accepted) / len(accepted)) if accepted else 64
    return [length or mean for length in lengths]


def collect_answers(config: EvaluateConfig, rows: list[Row], tokenizer: Any) -> dict[str, list[dict]]:
    """Records per model name. `base_lenient` scores the base's whole raw text, whatever the parser says
    of it.
    """
    answers: dict[str, list[dict]] = {}
    if config.base:
        answers["base"] = answer_with(config.base, rows, config, "base")
        answers["base_lenient"] = [
            {"summary": record["summary"] or record["raw"], "failure": None} for record in answers["base"]
        ]
    if config.trained:
        answers["trained"] = answer_with(config.trained, rows, config, "trained")
    if all(row.reference for row in rows):
        answers["teacher"] = [{"summary": row.reference, "failure": None} for row in rows]
    budgets = equal_budgets(answers["trained" if config.trained else "base"], rows, tokenizer)
    return answers | mechanical(rows, budgets, tokenizer)


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
    answers = collect_answers(config, rows, tokenizer)
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
        "run": dataclasses.asdict(config),
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
    history = Path(config.trained or "") / "log_history.json"
    has_loss = bool(config.trained) and history.is_file()
    if has_loss:
        plot_loss(json.loads(history.read_text()), directory / "loss.png")
    write_report(
        directory / "report.md", report, rows[0].compaction, {n: a[0] for n, a in answers.items()}, has_loss
    )
    return report


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
        directory = open_run_directory(config.output_dir)
    except (ValueError, FileExistsError) as error:
        fail(PROG, error)
    compare(config, directory, rows)
    files = [entry.rpartition("=")[2] for entry in [*config.compactions, *config.pairs]]
    describe_run(directory, dataclasses.asdict(config), files, {"rows": len(rows)})
    print((directory / "report.md").read_text().split("\n## ")[1].partition("\n")[2].strip())
    print(f"\n{directory / 'report.md'}")
    return 0
