"""The Markdown report: a table per slice with intervals, failures, one history with its summaries."""

from pathlib import Path

from condensery.compaction import Compaction
from condensery.prompt import render_history

COLUMNS = {
    "must_keep_recall": "must-keep recall",
    "distractor_facts": "distractor facts",
    "unsupported": "unsupported",
    "identifier_recall": "identifier recall",
    "rouge_l": "ROUGE-L to teacher",
    "tokens": "tokens",
    "compression_ratio": "compression",
}
MODELS = {
    "base": "base",
    "base_lenient": "base, lenient",
    "trained": "trained",
    "teacher": "teacher",
    "keep_newest": "keep newest",
    "observation_masking": "observation masking",
}
LEGEND = """Must-keep recall: share of the facts the task needs whose value stands with its subject.
Distractor facts: facts nobody needs, per summary. Unsupported: share of statements with a value that the
history does not hold (with that subject). "Lenient" scores the base's raw text, whatever its form. The two
mechanical baselines keep as many tokens as the trained summary of the same row. In brackets: 95 % bootstrap
interval over rows."""


def table(figures: dict[str, dict]) -> str:
    """One line a model, one column a metric that at least one model has."""
    shown = [name for name in COLUMNS if any(row.get(name) is not None for row in figures.values())]
    lines = [
        "| | " + " | ".join(COLUMNS[name] for name in shown) + " | failures |",
        "|---" * (len(shown) + 2) + "|",
    ]
    for model, row in figures.items():
        cells = [_cell(name, row) for name in shown]
        failures = ", ".join(f"{count} {kind}" for kind, count in row["failures"].items())
        lines.append(f"| {MODELS[model]} | " + " | ".join(cells) + f" | {failures or '-'} |")
    return "\n".join(lines)


def _cell(name: str, row: dict) -> str:
    if row[name] is None:
        return "-"
    digits = 0 if name == "tokens" else 2
    low, high = row[f"{name}_ci"]
    return f"{row[name]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def write_report(
    path: Path, report: dict, compaction: Compaction, answers: dict[str, dict], has_loss: bool
) -> None:
    models, data = report["models"], report["data"]
    parts = [
        "# Comparison of summarizers",
        f"{data['num_rows']} held-out compactions: "
        + ", ".join(f"{count} {name}" for name, count in data["slices"].items())
        + f". Prompt template: {report['run']['prompt_template']}.",
        f"## All rows in {data['main_language']!r}",
        table(models),
        *(
            f"## Slice {name!r} ({count} rows)\n\n"
            + table({model: figures["slices"][name] for model, figures in models.items()})
            for name, count in data["slices"].items()
        ),
        LEGEND,
        "![recall against tokens](recall.png)",
        *(["![training loss](loss.png)"] if has_loss else []),
        "## One held-out history",
        _block(f"Task: {compaction.task}\n\n{render_history(compaction.expired)}"),
        *(
            f"**{MODELS[name]}**"
            + (f" (failed: {answers[name]['failure']}; raw text)" if answers[name]["failure"] else "")
            + "\n\n"
            + _block(answers[name]["summary"] or answers[name].get("raw") or "")
            for name in ("base", "trained", "teacher")
            if name in answers
        ),
    ]  # fmt: skip
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _block(text: str) -> str:
    """A literal block that no text can end: indented, not fenced."""
    return "\n".join("    " + line for line in text.splitlines())
