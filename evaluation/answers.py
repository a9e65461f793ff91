"""What is compared: held-out rows, and what each summarizer says to them.

A record is `{"summary": text or None, "failure": kind or None}`; local models add `raw` and `finish_reason`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condensery.compaction import Compaction
from condensery.files.jsonl import JsonlAppender, read_jsonl, read_records, repair_tail
from condensery.prompt import render_prompt
from condensery.summary import parse_summary
from data_synthesis.pair import Pair
from evaluation.baselines import keep_newest, observation_masking
from evaluation.evaluate_config import EvaluateConfig


@dataclass(frozen=True)
class Row:
    """A compaction to summarize, the slices it counts in, and the teacher's summary where there is one."""

    compaction: Compaction
    slice: str
    reference: str | None


def load_rows(config: EvaluateConfig) -> list[Row]:
    """Held-out rows in file order. Raises ValueError for an empty set or a row that is no compaction."""
    references = {}
    for path in config.pairs:
        for pair in read_records(path, Pair):
            references[pair.compaction_id] = parse_summary(pair.completion[0].content).text
    rows = []
    for entry in config.compactions:
        name, _, path = entry.rpartition("=")
        compactions = list(read_records(path, Compaction))[: config.limit]
        rows += [
            Row(compaction, name or compaction.language, references.get(compaction.id))
            for compaction in compactions
        ]
    if not rows:
        raise ValueError(f"no compaction in {', '.join(config.compactions)}")
    return rows


def answer_with(
    label: str, name_or_path: str, rows: list[Row], config: EvaluateConfig, directory: Path
) -> list[dict]:
    """Greedy answers of a local model: one record a row, with raw text and the parser's verdict.

    An answer is a line of `generated.jsonl` as soon as it is there; rows that have one are not asked again.
    """
    path = directory / "generated.jsonl"
    repair_tail(path)
    known = read_jsonl(path) if path.exists() else []
    answers = {answer["compaction_id"]: answer for answer in known if answer["model"] == label}
    todo = list({r.compaction.id: r.compaction for r in rows if r.compaction.id not in answers}.values())
    if todo:
        for answer in generate_answers(label, name_or_path, todo, config, path):
            answers[answer["compaction_id"]] = answer
    return [_record(answers[row.compaction.id]) for row in rows]


def generate_answers(
    label: str, name_or_path: str, compactions: list[Compaction], config: EvaluateConfig, path: Path
) -> list[dict]:
    """Lines of `generated.jsonl` for these compactions, appended to `path`."""
    from modeling.generation import Generation, generate
    from modeling.loading import load_model_and_tokenizer

    model, tokenizer = load_model_and_tokenizer(name_or_path, config.dtype)
    prompts = [render_prompt(compaction, config.prompt_template) for compaction in compactions]
    lines: list[dict] = []
    with JsonlAppender(path) as file:

        def keep(position: int, answer: Generation) -> None:
            row = {"model": label, "compaction_id": compactions[position].id}
            lines.append(row | {"raw": answer.text, "finish_reason": answer.finish_reason})
            file.append(lines[-1])

        generate(model, tokenizer, prompts, config.max_new_tokens, config.batch_size, label=label, keep=keep)
    return lines


def _record(answer: dict) -> dict:
    summary = parse_summary(answer["raw"], answer["finish_reason"])
    return {
        "raw": answer["raw"],
        "finish_reason": answer["finish_reason"],
        "summary": summary.text,
        "failure": summary.failure,
    }


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


def collect_answers(
    config: EvaluateConfig, rows: list[Row], tokenizer: Any, directory: Path
) -> dict[str, list[dict]]:
    """Records per model name. `base_lenient` scores the base's whole raw text, whatever its form."""
    answers: dict[str, list[dict]] = {}
    if config.base:
        answers["base"] = answer_with("base", config.base, rows, config, directory)
        answers["base_lenient"] = [
            {"summary": record["summary"] or record["raw"], "failure": None} for record in answers["base"]
        ]
    if config.trained:
        answers["trained"] = answer_with("trained", config.trained, rows, config, directory)
    if all(row.reference for row in rows):
        answers["teacher"] = [{"summary": row.reference, "failure": None} for row in rows]
    budgets = equal_budgets(answers["trained" if config.trained else "base"], rows, tokenizer)
    return answers | mechanical(rows, budgets, tokenizer)
