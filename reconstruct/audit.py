"""What does a reward prefer? Honest summaries against damaged ones, by kind of damage, for each reward.

    condensery audit-reward runs/record --output_dir runs/audit --limit 100

Needs compactions whose truth is known, with a summary that keeps all of it: a run over an offline web with
the oracle teacher; `reconstruct/damage.py` has a web with enough of every kind.

Verdicts are appended to `verdicts.jsonl` as they come, and `--resume` asks for none twice.
`--write_negatives` writes the damaged summaries out, to train or to test judges on.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from condensery.files.config import fail, parse_args, resolved_config
from condensery.files.jsonl import JsonlAppender, read_records, write_jsonl
from condensery.files.run_directory import check_same_run, describe_run, open_run_directory, write_json
from reconstruct.audit_report import VerdictRow, figures_of, to_markdown
from reconstruct.scores import Quality, Reward, lexical_quality, likelihood_quality, score_of
from reconstruct.trials import Trial, collect_trials, negative_rows

PROG = "condensery audit-reward"
RewardName = Literal["lexical", "lexical_guarded", "likelihood", "likelihood_guarded"]
Verdicts = dict[tuple[str, str], VerdictRow]  # by reward and compaction


@dataclass
class AuditConfig:
    """Whose compactions, and which rewards."""

    path: Path = field(
        metadata={"positional": True, "help": "a run of `condensery record` over an offline web"}
    )
    output_dir: Path = field(metadata={"help": "where verdicts and report go"})
    rewards: list[RewardName] = field(
        default_factory=lambda: ["lexical", "lexical_guarded"],
        metadata={
            "help": "what is audited: lexical (values and words, the form as published), likelihood (a "
            "frozen model scores hidden blocks); guarded: less what is invented, copied or repeated"
        },
    )
    reconstructor: str = field(
        default="smollm2-135m-instruct", metadata={"help": "the frozen model of the likelihood reward"}
    )
    block_tokens: int = field(
        default=64, metadata={"help": "likelihood: about the length of a hidden block", "minimum": 16}
    )
    contrast_weight: float = field(
        default=0.5, metadata={"help": "likelihood: share of true against wrong values", "minimum": 0}
    )
    max_tokens: int = field(
        default=256, metadata={"help": "budget of a summary: L_max, and what a copy fills", "minimum": 1}
    )
    limit: int | None = field(
        default=None, metadata={"help": "compactions for each kind of damage (default: all)", "minimum": 1}
    )
    write_negatives: Path | None = field(
        default=None, metadata={"help": "a file for the damaged summaries, one a row"}
    )
    seed: int = field(default=0, metadata={"help": "of the damage"})
    resume: bool = field(default=False, metadata={"help": "go on with the audit in output_dir"})

    def __post_init__(self) -> None:
        if not (self.path / "trajectories.jsonl").is_file():
            raise ValueError(f"no {self.path}/trajectories.jsonl; `condensery record` writes it")
        if self.write_negatives and self.write_negatives.exists() and not self.resume:
            raise ValueError(
                f"write_negatives: {self.write_negatives} is there; name another file, or remove it"
            )

    @property
    def source(self) -> Path:
        return self.path / "trajectories.jsonl"


def build_rewards(config: AuditConfig) -> list[Reward]:
    """The one place that knows rewards by name."""
    rewards = []
    for name in config.rewards:
        quality: Quality = lexical_quality
        num_calls: Callable[[], int] = lambda: 0  # noqa: E731
        if name.startswith("likelihood"):
            quality, num_calls = _likelihood(
                config.reconstructor, config.block_tokens, config.contrast_weight
            )
        score = score_of(quality, config.max_tokens, guarded=name.endswith("_guarded"))
        rewards.append(Reward(name, score, num_calls))
    return rewards


@cache
def _likelihood(
    reconstructor: str, block_tokens: int, contrast_weight: float
) -> tuple[Quality, Callable[[], int]]:
    """Loaded once, for the rewards with and without guards."""
    from reconstruct.likelihood import load_reconstructor

    model = load_reconstructor(reconstructor)
    return likelihood_quality(model, block_tokens, contrast_weight), lambda: model.num_forwards


def ask_all(rewards: list[Reward], trials: list[Trial], path: Path) -> Verdicts:
    """All verdicts by (reward, compaction), those that stand in the file already included."""
    verdicts: Verdicts = {}
    with JsonlAppender(path) as file:
        for row in read_records(path, VerdictRow):
            verdicts[row.reward, row.compaction_id] = row
        todo = [
            (reward, trial)
            for reward in rewards
            for trial in trials
            if not _is_done(verdicts.get((reward.name, trial.compaction.id)), trial)
        ]
        for reward, trial in tqdm(todo, unit="compaction", desc="audit", disable=None):
            row = ask(reward, trial)
            file.append(row.model_dump())
            verdicts[row.reward, row.compaction_id] = row
    # The file may hold more than is asked for now: a larger limit, or other rewards.
    return {
        key: _only(verdicts[key], trial)
        for reward in rewards
        for trial in trials
        for key in [(reward.name, trial.compaction.id)]
    }


def _is_done(row: VerdictRow | None, trial: Trial) -> bool:
    """A higher limit asks a compaction for more kinds."""
    return row is not None and trial.summaries.keys() <= row.scores.keys()


def _only(row: VerdictRow, trial: Trial) -> VerdictRow:
    return row.model_copy(update={"scores": {kind: row.scores[kind] for kind in trial.summaries}})


def ask(reward: Reward, trial: Trial) -> VerdictRow:
    """One request for all summaries of a compaction, as in training; a score that is no number is missing."""
    calls_before, start = reward.num_model_calls(), time.perf_counter()
    scores = reward.score(trial.compaction, list(trial.summaries.values()))
    assert len(scores) == len(trial.summaries)
    return VerdictRow(
        compaction_id=trial.compaction.id,
        reward=reward.name,
        scores={kind: _number(score) for kind, score in zip(trial.summaries, scores)},
        seconds=round(time.perf_counter() - start, 4),
        num_model_calls=reward.num_model_calls() - calls_before,
    )


def _number(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


def run_audit(
    config: AuditConfig, directory: Path, trials: list[Trial], unused: dict[str, dict[str, int]]
) -> str:
    """Ask, and write report.json and report.md; returns the report's text."""
    verdicts = ask_all(build_rewards(config), trials, directory / "verdicts.jsonl")
    report = {
        "rewards": {
            name: figures_of([row for (reward, _), row in verdicts.items() if reward == name])
            for name in config.rewards
        },
        "data": {"num_compactions": len(trials), **unused},
        "run": resolved_config(config),
    }
    write_json(directory / "report.json", report)
    text = to_markdown(report)
    (directory / "report.md").write_text(text, encoding="utf-8")
    return text


def main(argv: Sequence[str] | None = None) -> int:
    example = f"{PROG} runs/record --output_dir runs/audit --limit 100"
    config = parse_args(AuditConfig, argv=argv, prog=PROG, description=__doc__, example=example)
    try:
        trials, unused = collect_trials(config.source, config.limit, config.max_tokens, config.seed)
        directory = open_run_directory(config.output_dir, config.resume)
        check_same_run(
            directory, resolved_config(config), [config.source], {"path", "rewards", "write_negatives"}
        )
        describe_run(directory, resolved_config(config), [config.source], {"compactions": len(trials)})
        if config.write_negatives:
            write_jsonl(config.write_negatives, negative_rows(trials))
        print(run_audit(config, directory, trials, unused))
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; verdicts are kept, --resume goes on", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        fail(PROG, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
