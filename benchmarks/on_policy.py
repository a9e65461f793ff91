"""On-policy distillation on held-out compactions: the student before and after, measured against its teacher.

    condensery sft --config configs/sft/smollm2_cpu.yaml --train_file runs/pairs/train.jsonl \\
        --output_dir runs/sft
    condensery on-policy --config configs/on_policy/smollm2_cpu.yaml --train_file runs/pairs/train.jsonl \\
        --teacher_model_name_or_path runs/sft --output_dir runs/on_policy
    python benchmarks/on_policy.py --before smollm2-135m-instruct --after runs/on_policy --teacher runs/sft \\
        --compactions runs/held_out/compactions_train.jsonl --pairs runs/held_out/train.jsonl

`reverse_kl`: KL(student || teacher) in nats a token, on summaries that the student samples, the quantity
trained on. `forward_kl`: KL(teacher || student) on the reference summaries of the pairs. Recall is that of
greedy summaries; `lenient` scores the whole answer, whatever its form. Intervals are bootstrapped over
compactions. The ratio is reverse KL before over after; it has no bound.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from condensery.compaction import Compaction
from condensery.files.config import parse_args
from condensery.files.jsonl import read_jsonl, read_records
from condensery.summary import Summary, parse_summary
from condensery.thinking import Thinking
from evaluation.aggregate import LEVEL, NUM_RESAMPLES, ratio_with_interval
from evaluation.scoring import score_summary
from modeling.chat_template import RenderedPair, prompt_ids, render_pair, thinking_switch
from modeling.generation import Generation, generate
from modeling.loading import load_model, load_tokenizer
from modeling.logprobs import completion_distributions, kl_divergence
from modeling.precision import computed_dtype

METRICS = ("reverse_kl", "forward_kl", "must_keep_recall", "must_keep_recall_lenient")


@dataclass
class Config:
    """Three models of one vocabulary, and held-out rows with reference summaries."""

    before: str = field(metadata={"help": "the student before"})
    after: str = field(metadata={"help": "the student after"})
    teacher: str = field(metadata={"help": "the teacher"})
    compactions: Path = field(metadata={"help": "held-out compactions, with facts"})
    pairs: Path = field(metadata={"help": "their pairs, in any order"})
    thinking: Thinking = field(default="none", metadata={"help": "as the models were trained"})
    max_new_tokens: int = field(default=128, metadata={"help": "budget of a summary", "minimum": 1})
    batch_size: int = field(default=8, metadata={"help": "prompts answered at once", "minimum": 1})
    limit: int | None = field(default=None, metadata={"help": "only the first rows", "minimum": 1})
    dtype: str = field(default="bfloat16", metadata={"help": "precision of the weights"})
    seed: int = field(default=0, metadata={"help": "of sampling and of the bootstrap"})


Counts = list[tuple[float, float]]  # numerator and denominator of each row


class Held:
    """The held-out rows, and what a model does with them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.compactions = list(read_records(config.compactions, Compaction))[: config.limit]
        pairs = {row["compaction_id"]: row for row in read_jsonl(config.pairs)}
        self.rows = [pairs[compaction.id] for compaction in self.compactions]
        self.tokenizer = load_tokenizer(config.teacher)
        self.switch = thinking_switch(self.tokenizer, config.thinking)
        self.references = [
            render_pair(
                self.tokenizer, row["prompt"], row["completion"], config.thinking, row.get("reasoning") or ""
            )
            for row in self.rows
        ]

    def answers(self, model: Any, temperature: float, label: str) -> list[Generation]:
        config = self.config
        return generate(
            *(model, self.tokenizer, [row["prompt"] for row in self.rows]),
            *(config.max_new_tokens, config.batch_size, temperature),
            seed=config.seed,
            enable_thinking=self.switch,
            label=label,
        )

    def sampled(self, model: Any, label: str) -> list[RenderedPair]:
        """The summaries that the model samples at temperature 1, as in training."""
        pairs = []
        for row, answer in zip(self.rows, self.answers(model, 1.0, label), strict=True):
            prompt = prompt_ids(self.tokenizer, row["prompt"], self.switch)
            pairs.append(RenderedPair(prompt + answer.token_ids, len(prompt)))
        return pairs

    def recall(self, model: Any, label: str) -> dict[str, Counts]:
        counts: dict[str, Counts] = {"must_keep_recall": [], "must_keep_recall_lenient": []}
        answers = self.answers(model, 0.0, label)
        for row, compaction, answer in zip(self.rows, self.compactions, answers, strict=True):
            strict = parse_summary(answer.text, answer.finish_reason)
            lenient = Summary(strict.text or answer.text, None)
            for name, summary in zip(counts, (strict, lenient), strict=True):
                score = score_summary(summary, compaction, row["language"], self.tokenizer, None)
                counts[name].append((score.num_kept or 0, score.num_must_keep or 0))
        return counts


def divergence(p: Any, q: Any, pairs: list[RenderedPair]) -> Counts:
    """KL(p || q) summed over the completion of each row, and its tokens."""
    counts = []
    for pair in pairs:
        kl = kl_divergence(completion_distributions(p, pair), completion_distributions(q, pair))
        counts.append((float(kl.sum()), float(len(kl))))
    return counts


def measure(held: Held, name: str, teacher: Any) -> dict[str, Counts]:
    """All metrics of a student, by row."""
    model = load_model(name, computed_dtype(held.config.dtype))
    own = held.sampled(model, f"{name}: sampled")
    return {
        "reverse_kl": divergence(model, teacher, own),
        "forward_kl": divergence(teacher, model, held.references),
        **held.recall(model, f"{name}: greedy"),
    }


def figures(case: str, counts: dict[str, Counts], seed: int) -> dict[str, Any]:
    """The metrics of one model, each with its interval."""
    result: dict[str, Any] = {"case": case, "num_rows": len(next(iter(counts.values())))}
    for name, rows in counts.items():
        top, bottom = [list(terms) for terms in zip(*rows, strict=True)]
        result[name], result[f"{name}_ci"] = ratio_with_interval(top, bottom, seed)
    return result


def ratio_of(before: Counts, after: Counts, seed: int) -> tuple[float, list[float]]:
    """Mean per token before over after, rows drawn together, with its interval."""
    terms = np.array([before, after])  # (2, rows, 2)
    picks = np.random.default_rng(seed).integers(0, terms.shape[1], (NUM_RESAMPLES, terms.shape[1]))
    sums = terms[:, picks].sum(axis=2)  # (2, resamples, 2)
    ratios = (sums[0, :, 0] / sums[0, :, 1]) / (sums[1, :, 0] / sums[1, :, 1])
    means = terms.sum(axis=1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    ratio = (means[0, 0] / means[0, 1]) / (means[1, 0] / means[1, 1])
    return round(float(ratio), 2), [round(float(low), 2), round(float(high), 2)]


def table(cases: list[dict[str, Any]]) -> str:
    lines = [f"{'':10}" + "".join(f"{name:>28}" for name in METRICS)]
    for case in cases:
        cells = [f"{case[m]:.3f} {case[f'{m}_ci']}" if m in case else "-" for m in METRICS]
        lines.append(f"{case['case']:10}" + "".join(f"{cell:>28}" for cell in cells))
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    config = parse_args(Config, argv=argv, prog="benchmarks/on_policy.py", description=__doc__)
    held = Held(config)
    teacher = load_model(config.teacher, computed_dtype(config.dtype))
    counts = {name: measure(held, vars(config)[name], teacher) for name in ("before", "after")}
    cases = [figures(name, rows, config.seed) for name, rows in counts.items()]
    cases.append(figures("teacher", held.recall(teacher, "teacher: greedy"), config.seed))
    ratio, interval = ratio_of(counts["before"]["reverse_kl"], counts["after"]["reverse_kl"], config.seed)
    print(table(cases), file=sys.stderr)
    result = {
        "benchmark": "on_policy",
        "rival": "the student before",
        "ratio": ratio,
        "ratio_ci": interval,
        "bound": None,
        "cases": cases,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
