"""What is compared: held-out rows, and what each summarizer says to them.

A record is `{"summary": text or None, "failure": kind or None}`; local models add `raw` and `finish_reason`.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from condensery.compaction import Compaction
from condensery.files.export_card import NAME, read_export_card
from condensery.files.jsonl import JsonlAppender, read_records
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


class Generated(BaseModel):
    """A line of `generated.jsonl`."""

    model: str
    compaction_id: str
    raw: str
    finish_reason: str


def load_rows(config: EvaluateConfig) -> list[Row]:
    """Held-out rows in file order.

    Raises ValueError for an empty set, a row that is no compaction, one that stands there twice (it would
    count twice), and pairs that do not cover all rows (the teacher's line would be of other rows).
    """
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
    twice = [each for each, number in Counter(row.compaction.id for row in rows).items() if number > 1]
    if twice:
        raise ValueError(f"{len(twice)} compaction(s) stand in --compactions more than once, e.g. {twice[0]}")
    alone = [row.compaction.id for row in rows if row.reference is None]
    if config.pairs and alone:
        raise ValueError(
            f"{len(alone)} of {len(rows)} compactions have no pair in --pairs, e.g. {alone[0]}; give the "
            "pairs of all of them, or none"
        )
    return rows


def answer_with(
    label: str, name_or_path: str, rows: list[Row], config: EvaluateConfig, directory: Path
) -> list[dict]:
    """Greedy answers of a local model: one record a row, with raw text and the parser's verdict.

    An answer is a line of `generated.jsonl` as soon as it is there; rows that have one are not asked again.
    """
    path = directory / "generated.jsonl"
    with JsonlAppender(path) as file:
        answers = {line.compaction_id: line for line in read_records(path, Generated) if line.model == label}
        todo = [row.compaction for row in rows if row.compaction.id not in answers]
        if todo:
            for answer in generate_answers(label, name_or_path, todo, config, file):
                answers[answer.compaction_id] = answer
    return [_record(answers[row.compaction.id]) for row in rows]


def generate_answers(
    label: str, name_or_path: str, compactions: list[Compaction], config: EvaluateConfig, file: JsonlAppender
) -> list[Generated]:
    """Lines of `generated.jsonl` for these compactions, appended to `file`."""
    from modeling.generation import Generation, generate
    from modeling.loading import load_model_and_tokenizer
    from modeling.precision import computed_dtype

    model, tokenizer = load_model_and_tokenizer(name_or_path, computed_dtype(config.dtype))
    prompts = [render_prompt(compaction, config.prompt_template) for compaction in compactions]
    lines: list[Generated] = []

    def keep(position: int, answer: Generation) -> None:
        line = Generated(
            model=label,
            compaction_id=compactions[position].id,
            raw=answer.text,
            finish_reason=answer.finish_reason,
        )
        lines.append(line)
        file.append(line.model_dump())

    generate(
        *(model, tokenizer, prompts, config.max_new_tokens, config.batch_size),
        enable_thinking=switch_of(name_or_path),
        label=label,
        keep=keep,
    )
    return lines


def switch_of(name_or_path: str) -> bool | None:
    """The thinking switch that an export was trained with; others have their chat template's default."""
    folder = Path(name_or_path)
    return read_export_card(folder).enable_thinking if (folder / NAME).is_file() else None


def _record(answer: Generated) -> dict:
    summary = parse_summary(answer.raw, answer.finish_reason)
    return {
        "raw": answer.raw,
        "finish_reason": answer.finish_reason,
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
    if config.pairs:
        answers["teacher"] = [{"summary": row.reference, "failure": None} for row in rows]
    budgets = equal_budgets(answers["trained" if config.trained else "base"], rows, tokenizer)
    return answers | mechanical(rows, budgets, tokenizer)
