"""Recorded runs side by side: accuracy, what they cost, how they ended."""

from collections import Counter

from condensery.trajectory import Trajectory
from condensery.verdict import Verdict
from evaluation.aggregate import ratio_with_interval


def describe_runs(
    runs: dict[str, list[Trajectory]], verdicts: dict[str, dict[str, Verdict]]
) -> dict[str, dict]:
    """The figures of each run; intervals are drawn over questions, whose rollouts belong together."""
    return {name: _describe(run, verdicts[name]) for name, run in runs.items()}


def _describe(run: list[Trajectory], verdicts: dict[str, Verdict]) -> dict:
    asked = [trajectory for trajectory in run if trajectory.answer]
    judged = [each for each in asked if each.id in verdicts and verdicts[each.id].verdict is not None]
    rollouts = Counter(each.question_id for each in asked)
    right: dict[str, list[bool]] = {}
    unforced: dict[str, list[bool]] = {}
    for each in judged:
        is_right = bool(verdicts[each.id].verdict)
        right.setdefault(each.question_id, []).append(is_right)
        unforced.setdefault(each.question_id, []).append(is_right and not each.forced)
    accuracy = _over_questions({name: sum(rows) / len(rows) for name, rows in right.items()})
    without = _over_questions({name: sum(rows) / len(rows) for name, rows in unforced.items()})
    # A question with a verdict missing would count as wrong, or its being right as certain.
    whole = {name for name, count in rollouts.items() if len(right.get(name, [])) == count}
    any_of = _over_questions({name: float(any(right[name])) for name in sorted(whole)})
    return {
        "paradigm": ", ".join(sorted({each.paradigm or "-" for each in run})),
        "questions": len(rollouts),
        "rollouts": len(asked),
        "rollouts_per_question": max(rollouts.values()),
        "pass_at_1": accuracy[0],
        "pass_at_1_ci": accuracy[1],
        "pass_at_k": any_of[0],
        "pass_at_k_ci": any_of[1],
        "pass_at_1_unforced": without[0],
        "pass_at_1_unforced_ci": without[1],
        "missing": len(asked) - len(judged),
        "missing_share": (len(asked) - len(judged)) / len(asked),
        "tokens": _mean([each.num_tokens or 0 for each in run]),
        "calls": _mean([sum(message.role == "assistant" for message in each.messages) for each in run]),
        "compactions": _mean([_num_compactions(each) for each in run]),
        "terminations": dict(Counter(each.termination for each in run).most_common()),
    }


def _num_compactions(trajectory: Trajectory) -> int:
    """How often the model saw less from one turn to the next, with a summary or without."""
    return len(trajectory.borders) + sum(cut.summary is not None for cut in trajectory.cuts)


def _over_questions(scores: dict[str, float]) -> tuple[float | None, list[float] | None]:
    return ratio_with_interval(list(scores.values()), [1.0] * len(scores))


def _mean(values: list[int]) -> float:
    return round(sum(values) / len(values), 2)


def to_markdown(figures: dict[str, dict], judge: str) -> str:
    lines = [
        f"Judged by {judge}. Intervals: 95 %, bootstrap over questions. Unforced: a forced answer is wrong.",
        "",
        "| run | paradigm | questions | Pass@1 | unforced | Pass@k | k | missing | tokens | calls "
        "| compactions | ended |",
        "|---" * 12 + "|",
    ]
    for name, row in figures.items():
        shown = [_with_interval(row, key) for key in ("pass_at_1", "pass_at_1_unforced", "pass_at_k")]
        ended = ", ".join(f"{count} {reason}" for reason, count in row["terminations"].items())
        cells = [name, row["paradigm"], row["questions"], *shown, row["rollouts_per_question"]]
        cells += [row["missing"], f"{row['tokens']:.0f}", row["calls"], row["compactions"], ended]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _with_interval(row: dict, key: str) -> str:
    if row[key] is None:
        return "-"
    low, high = row[f"{key}_ci"]
    return f"{row[key]:.2f} [{low:.2f}, {high:.2f}]"
