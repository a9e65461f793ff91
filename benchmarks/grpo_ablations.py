"""SUMONE's ablations at the size of a CPU: how much is hidden, what a token costs, which reward.

    python benchmarks/grpo_ablations.py --model runs/sft --train runs/record_train \\
        --held_out runs/record_held_out --output_dir runs/ablations
    ... --reconstructor_url http://127.0.0.1:8000/v1    # with the published reward, which asks an endpoint

Each run is `condensery grpo` with one setting changed; then the greedy summaries of each student on the same
held-out contexts, as benchmarks/grpo_curves.py measures them (its `rows.jsonl` has them all). A run that is
finished is not repeated and one that was stopped goes on, so the command may be typed again at any time.
A direction is that against the first run: `up` or `down` only where the interval of the difference over the
same contexts leaves out 0. Beside it is what the paper reports (F1 on DeepSearchQA and LongMemEval, FACTS 4).
"""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_curves import METRICS, difference

from condensery.files.config import parse_args
from condensery.files.jsonl import read_jsonl
from condensery.files.run_directory import read_run, write_json

CONFIG = Path(__file__).parents[1] / "configs" / "grpo" / "smollm2_cpu.yaml"
GENERATED = ["--reward", "generate", "--judge", "lexical", "--guards", "false"]


@dataclass(frozen=True)
class Arm:
    """One run: what differs from the first, and the paper's figures for it."""

    words: list[str]
    mask_ratio: float = 0.5
    paper: str = "-"


ARMS = {
    "first": Arm([], paper="mask 50 %: .48, .47; lambda .1: .48, .47"),
    "mask_25": Arm([], 0.25, "down: .41, .35"),
    "mask_75": Arm([], 0.75, "down: .29, .20"),
    "lambda_01": Arm(["--length_weight", "0.01"], paper="equal or down: .47, .41"),
    "lambda_50": Arm(["--length_weight", "0.5"], paper="down: .37, .30"),
    "likelihood_alone": Arm(["--contrast_weight", "0", "--guards", "false"]),
    "generated": Arm(GENERATED, paper="the published reward, with a lexical judge"),
}


@dataclass
class Config:
    """From which model, on which runs, how long."""

    model: str = field(metadata={"help": "the student before"})
    train: Path = field(metadata={"help": "recorded or imported runs to train on"})
    held_out: list[Path] = field(metadata={"help": "runs with facts, on other questions"})
    output_dir: Path = field(metadata={"help": "where all runs go"})
    reconstructor: str = field(default="smollm2-135m-instruct", metadata={"help": "the frozen model"})
    reconstructor_url: str | None = field(
        default=None, metadata={"help": "its endpoint, for the published reward; default: without that run"}
    )
    arms: list[str] = field(
        default_factory=lambda: list(ARMS), metadata={"help": "which runs, the first first"}
    )
    context_tokens: int = field(default=640, metadata={"help": "length of a context", "minimum": 256})
    num_steps: int = field(default=20, metadata={"help": "steps of each run", "minimum": 1})
    limit: int | None = field(default=None, metadata={"help": "held-out contexts of each", "minimum": 1})
    grpo: str = field(default="", metadata={"help": "more settings for all runs, in one word"})

    def __post_init__(self) -> None:
        if unknown := [name for name in self.arms if name not in ARMS]:
            raise ValueError(f"--arms {unknown[0]}; choose from {', '.join(ARMS)}")
        if self.arms[0] != "first":
            raise ValueError(
                f"--arms begins with {self.arms[0]}; it must be first, which all are compared with"
            )


def main(argv: list[str] | None = None) -> None:
    config = parse_args(
        Config, argv=argv, prog="benchmarks/grpo_ablations.py", description=__doc__, example=""
    )
    names = [name for name in config.arms if name != "generated" or config.reconstructor_url]
    held_out = [cut(config, path, 0.5, 1) for path in config.held_out]
    runs = {name: train(config, name, cut(config, config.train, ARMS[name].mask_ratio, 2)) for name in names}
    curves = [sys.executable, str(Path(__file__).with_name("grpo_curves.py"))]
    curves += ["--runs", *(f"{name}={run}" for name, run in runs.items())]
    curves += ["--instances", *map(str, held_out), "--output_dir", str(config.output_dir / "held_out")]
    curves += ["--reconstructor", config.reconstructor]
    subprocess.run(curves + (["--limit", str(config.limit)] if config.limit else []), check=True)
    cases = compare(config.output_dir / "held_out", runs)
    print(table(cases), file=sys.stderr)
    write_json(config.output_dir / "ablations.json", cases)
    print(json.dumps({"benchmark": "grpo_ablations", "rival": "the first run", "cases": cases}))


def cut(config: Config, runs: Path, mask_ratio: float, num_masks: int) -> Path:
    """Instances of these runs, at least 8 blocks a history."""
    place = config.output_dir / f"instances_{runs.name}_{mask_ratio:g}"
    if not (place / "run.json").is_file():
        words = [str(runs), "--output_dir", str(place), "--context_tokens", str(config.context_tokens)]
        words += ["--block_tokens", "64", "--tokenizer", config.model, "--held_out", "0", "--resume", "true"]
        words += ["--mask_ratio", f"{mask_ratio:g}", "--num_masks", str(num_masks), "--on_error", "skip"]
        condensery("instances", words)
    return place / "instances.jsonl"


def train(config: Config, name: str, instances: Path) -> Path:
    """One run, its only checkpoint the last."""
    place = config.output_dir / name
    if place.is_dir() and read_run(place / "run.json")["counts"].get("finished"):
        return place
    words = ["--config", str(CONFIG), "--model_name_or_path", config.model, "--train_file", str(instances)]
    words += ["--reconstructor", config.reconstructor, "--max_steps", str(config.num_steps)]
    words += ["--output_dir", str(place), *config.grpo.split(), *ARMS[name].words]
    if name == "generated":
        words += ["--reconstructor_url", str(config.reconstructor_url)]
    condensery("grpo", [*words, "--resume"])
    return place


def condensery(command: str, words: list[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "condensery", command, *words], check=True, stdout=subprocess.DEVNULL
    )


def compare(held_out: Path, runs: dict[str, Path]) -> list[dict[str, Any]]:
    """Figures of each run's last checkpoint, with the interval of its difference to the first run's."""
    curves = json.loads((held_out / "curves.json").read_text())
    last = {case["run"]: case for case in curves}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    for row in read_jsonl(held_out / "rows.jsonl"):
        for name, run in runs.items():
            if row["model"] == str(run / f"checkpoint-{last[name]['step']}"):
                rows[name].append(row)
    start = {"run": "start", "step": 0, "paper": "-"}
    cases = [start | {key: curves[0][key] for metric in METRICS for key in (metric, f"{metric}_ci")}]
    for name in runs:
        case = {"run": name, "step": last[name]["step"], "paper": ARMS[name].paper}
        for metric in METRICS:
            case |= {key: last[name][key] for key in (metric, f"{metric}_ci")}
            low, high = difference(rows["first"], rows[name], metric, 0)
            case[f"{metric}_to_first_ci"] = [low, high]
            case[f"{metric}_direction"] = "up" if low > 0 else "down" if high < 0 else "open"
        cases.append(case)
    return cases


def table(cases: list[dict[str, Any]]) -> str:
    """One line a run, as Markdown; a direction stands behind an interval that leaves out 0."""
    lines = ["| run | " + " | ".join(METRICS) + " | paper |", "|---" * (len(METRICS) + 2) + "|"]
    for case in cases:
        cells = []
        for metric in METRICS:
            value, edges = case[metric], case[f"{metric}_ci"]
            cell = "-" if value is None else f"{value:.3g} [{edges[0]:.3g}, {edges[1]:.3g}]"
            direction = case.get(f"{metric}_direction", "open")
            cells.append(cell if direction == "open" else f"{cell} {direction}")
        lines.append(f"| {case['run']} | " + " | ".join(cells) + f" | {case['paper']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
