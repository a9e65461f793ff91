"""Pictures for the report, drawn without a display."""

from pathlib import Path

import matplotlib

from evaluation.evaluate_config import LoggedStep
from evaluation.report import MODELS

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plot_recall(report: dict, path: Path) -> None:
    """Must-keep recall against tokens, one point a model; ROUGE-L to the teacher where no truth is known."""
    models = report["models"]
    known = any(row["must_keep_recall"] is not None for row in models.values())
    metric, label = (
        ("must_keep_recall", "must-keep recall") if known else ("rouge_l", "ROUGE-L to the teacher")
    )
    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    for name, row in models.items():
        if row[metric] is None or row["tokens"] is None:
            continue
        low, high = row[f"{metric}_ci"]
        error = [[row[metric] - low], [high - row[metric]]]
        axes.errorbar(row["tokens"], row[metric], yerr=error, fmt="o", capsize=3, label=MODELS[name])
    axes.set(xlabel="tokens per summary", ylabel=label, ylim=(-0.02, 1.02), title="Held-out compactions")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, path)


def plot_loss(history: list[LoggedStep], path: Path) -> None:
    """Training loss by step, and held-out loss where it was measured."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for key, label in (("loss", "training"), ("eval_loss", "held-out")):
        points = [(row.step, vars(row)[key]) for row in history if vars(row)[key] is not None]
        if points:
            axes.plot(*zip(*points), marker="." if key == "loss" else "o", label=label)
    axes.set(xlabel="step", ylabel="loss (nats per token)", title="Fine-tuning")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
