"""Which pairs are kept: each rule drops with a reason of its own, and none changes a pair."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from condensery.compaction import Compaction
from condensery.facts import recall
from condensery.files.jsonl import BadLine, scan_jsonl
from condensery.similarity import Shingles, shingles_of, similar_pairs
from condensery.trajectory import Trajectory
from condensery.verdict import read_verdicts
from condensery.words import words_of
from data_synthesis.pair import Dropped, Pair, Reason

CONTAMINATION_WORDS = 13  # a run of so many words in common, as GPT-3 and its successors counted it
SIMILAR_QUESTIONS = 0.9


@dataclass
class PolicyConfig:
    """Rules for pairs; by default all that were accepted stay."""

    max_unsupported: float | None = field(
        default=None,
        metadata={"help": "tolerated share of statements whose values the history does not hold"},
    )
    verdict: Literal["any", "right", "not_wrong"] = field(
        default="any", metadata={"help": "of the rollout (condensery judge): keep pairs of these only"}
    )
    min_gain: float | None = field(
        default=None, metadata={"help": "history tokens for each summary token, at least"}
    )
    languages: list[str] = field(default_factory=list, metadata={"help": "keep these only, like en zh"})
    near_duplicates: float | None = field(
        default=None, metadata={"help": "drop a pair that overlaps an earlier one by this share, like 0.9"}
    )
    contamination: list[Path] = field(
        default_factory=list,
        metadata={"help": "evaluation sets (JSONL with `question`): drop pairs of their questions"},
    )
    contrast: Path | None = field(
        default=None,
        metadata={"help": "a judged run of the same questions with full history: marks pairs as hard"},
    )
    hard_only: bool = field(
        default=False, metadata={"help": "keep only where the full history succeeded and the summary failed"}
    )

    def __post_init__(self) -> None:
        if self.max_unsupported is not None and not 0 <= self.max_unsupported <= 1:
            raise ValueError(f"--max_unsupported is {self.max_unsupported:g}; it is a share, from 0 to 1")
        if self.near_duplicates is not None and not 0 < self.near_duplicates <= 1:
            raise ValueError(
                f"--near_duplicates is {self.near_duplicates:g}; it is a share, above 0, up to 1"
            )
        if self.min_gain is not None and self.min_gain < 1:
            raise ValueError(
                f"--min_gain is {self.min_gain:g}; a summary is shorter than its history: 1 or more"
            )
        if self.hard_only and not self.contrast:
            raise ValueError("--hard_only needs --contrast, a run of the same questions with full history")

    def files(self) -> list[Path]:
        """What the rules read, beside the runs."""
        contrast = [self.contrast / "trajectories.jsonl"] if self.contrast else []
        return [*self.contamination, *contrast]


def verdicts_in(directory: Path) -> dict[str, bool | None]:
    """The verdicts of the last judge, by run; where none was given, what the log says counts."""
    return {run: judged.verdict for run, judged in read_verdicts(directory).items()}


def check_pair(pair: Pair, verdict: bool | None, config: PolicyConfig) -> Dropped | None:
    """The rules for which one pair is enough to look at."""
    share = pair.num_unsupported / (pair.num_statements or 1)
    if config.max_unsupported is not None and share > config.max_unsupported:
        return _drop(pair, "unsupported", f"{pair.num_unsupported} of {pair.num_statements} statements")
    if config.verdict == "right" and verdict is not True:
        return _drop(
            pair,
            "verdict",
            "the answer is wrong" if verdict is False else "no verdict on the answer (`condensery judge`)",
        )
    if config.verdict == "not_wrong" and verdict is False:
        return _drop(pair, "verdict", "the answer is wrong")
    gain = pair.history_tokens / (pair.completion_tokens or 1)
    if config.min_gain is not None and gain < config.min_gain:
        return _drop(pair, "low_gain", f"{gain:.1f} history tokens for each summary token")
    if config.languages and pair.language not in config.languages:
        return _drop(pair, "language", f"{pair.language} is none of {', '.join(config.languages)}")
    if config.hard_only and not pair.hard:
        return _drop(pair, "not_hard", "the summary did not fail where the full history succeeded")
    return None


def keep_best(
    rows: list[Pair | Dropped], compaction: Compaction, best_by: Literal["provenance", "recall", "length"]
) -> list[Pair | Dropped]:
    """The best of several summaries of one history; the first of equals."""

    def score(pair: Pair) -> float:
        if best_by == "length":
            return -pair.completion_tokens
        if best_by == "recall":
            num_kept, num_facts = recall(pair.completion[0].content, compaction.facts or [])
            return num_kept / (num_facts or 1)
        return -pair.num_unsupported / (pair.num_statements or 1)

    pairs = [row for row in rows if isinstance(row, Pair)]
    best = max(pairs, key=score, default=None)
    return [
        row if isinstance(row, Dropped) or row is best else _drop(row, "not_best", f"by {best_by}")
        for row in rows
    ]


def near_duplicates(pairs: list[Pair], shingles: dict[str, Shingles], similar: float) -> dict[str, Dropped]:
    """By pair id, all but the first of pairs that say the same: prompt and summary together."""
    texts = {pair.id: shingles[pair.id] for pair in pairs}
    by_id = {pair.id: pair for pair in pairs}
    position = {pair.id: number for number, pair in enumerate(pairs)}
    dropped: dict[str, Dropped] = {}
    for first, second in sorted(similar_pairs(texts, similar), key=lambda ids: [position[i] for i in ids]):
        if first not in dropped and second not in dropped:
            dropped[second] = _drop(by_id[second], "near_duplicate", f"of pair {first}")
    return dropped


def contaminated_questions(tasks: dict[str, str], files: list[Path]) -> dict[str, str]:
    """The questions, by id, that stand in an evaluation set, with the place there. Raises ValueError for a
    file without questions."""
    evaluated = {f"{path}:{line}": text for path in files for line, text in _questions_in(path)}
    places = {gram: place for place, text in evaluated.items() for gram in _long_runs(text)}
    # A task is the question with the user's constraints: the question alone may stand there.
    asked = {f"{form} of {name}": name for name in tasks for form in ("task", "question")}
    texts = {f"task of {name}": task for name, task in tasks.items()}
    texts |= {f"question of {name}": task.partition("\n- ")[0] for name, task in tasks.items()}
    found = {}
    for form, text in texts.items():
        if place := next((places[gram] for gram in _long_runs(text) if gram in places), None):
            found[asked[form]] = place
    shingles = {name: shingles_of(text) for name, text in (evaluated | texts).items()}
    for first, second in similar_pairs(shingles, SIMILAR_QUESTIONS):
        if first in evaluated and second in asked:
            found[asked[second]] = first
    return found


def _long_runs(text: str) -> Shingles:
    has_any = len(words_of(text)) >= CONTAMINATION_WORDS
    return shingles_of(text, CONTAMINATION_WORDS) if has_any else frozenset()


def _questions_in(path: Path) -> list[tuple[int, str]]:
    """Every row must be readable: a question that is skipped here would be trained on."""
    questions = []
    for line, row in scan_jsonl(path):
        question = None if isinstance(row, BadLine) else row.get("question")
        if not isinstance(question, str):
            reason = row.reason if isinstance(row, BadLine) else "no `question`"
            raise ValueError(f"{path}:{line}: {reason}; give evaluation sets as JSON lines with `question`")
        questions.append((line, question))
    if not questions:
        raise ValueError(f"{path} holds no row with a `question`; give evaluation sets in JSON lines")
    return questions


def hard_questions(directory: Path, runs: Iterable[Trajectory]) -> set[str]:
    """Questions that a run with full history answered right. Raises ValueError when it is not judged, or
    when its agent did not see the full history."""
    judged = verdicts_in(directory)
    verdicts: set[bool | None] = set()
    answered: set[str] = set()
    cut = ""
    for run in runs:
        verdicts.add(verdict := judged.get(run.id, run.verdict))
        if verdict:
            answered.add(run.question_id)
        if not cut and (run.paradigm not in (None, "react") or run.cuts or run.borders):
            cut = f"{run.id} was cut (paradigm {run.paradigm or '-'})"
    if verdicts <= {None}:
        raise ValueError(f"{directory} is not judged; `condensery judge {directory}` does it")
    if cut:
        raise ValueError(
            f"{directory} is no run with full history: {cut}; `condensery record --paradigm react` makes one"
        )
    return answered


def _drop(pair: Pair, reason: Reason, detail: str) -> Dropped:
    return Dropped(pair.compaction_id, pair.trajectory_id, reason, detail)


def contaminated(pairs: list[Pair], tasks: dict[str, str], files: list[Path]) -> dict[str, Dropped]:
    """By pair id, the pairs on questions of evaluation sets."""
    found = contaminated_questions(tasks, files) if files else {}
    return {
        pair.id: _drop(pair, "contaminated", f"its question is that of {found[pair.question_id]}")
        for pair in pairs
        if pair.question_id in found
    }
