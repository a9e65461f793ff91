"""From verdicts to the audit's figures: how often a reward prefers the better summary, with intervals."""

import math
from collections.abc import Callable, Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from reconstruct.damage import KINDS
from reconstruct.trials import HONEST

Z = 1.96  # 95 %
# Also asked: of two bad summaries the one that does less harm should win.
PAIRS = [("vague", "wrong_facts"), ("empty", "wrong_facts"), ("vague", "empty")]
LEGEND = """How often a reward prefers the honest summary to one damaged in this way (of equal scores half),
with the Wilson 95 % interval; `=`: the share of equal scores, where there are any. The rows in bold compare
two bad summaries of the same history. A compaction counts where both verdicts came."""


class VerdictRow(BaseModel):
    """A line of `verdicts.jsonl`: what a reward says to the summaries of a compaction; null: no verdict."""

    model_config = ConfigDict(extra="forbid")
    compaction_id: str
    reward: str
    scores: dict[str, float | None]
    seconds: float
    num_model_calls: int


def wilson_interval(num_wins: float, num_trials: int) -> list[float] | None:
    """The 95 % interval of a share (Wilson, 1927); unlike the normal one it holds at 0 and at 1."""
    if num_trials == 0:
        return None
    share, square = num_wins / num_trials, Z * Z / num_trials
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (share * (1 - share) + square / 4)) / (1 + square)
    return [round(max(0.0, middle - half), 4), round(min(1.0, middle + half), 4)]


def preference(rows: Iterable[VerdictRow], better: str, worse: str) -> dict:
    """How `better` fares against `worse` on the compactions that have both."""
    pairs = [(row.scores[better], row.scores[worse]) for row in rows if {better, worse} <= row.scores.keys()]
    known = [(first, second) for first, second in pairs if first is not None and second is not None]
    wins, ties = sum(a > b for a, b in known), sum(a == b for a, b in known)
    return {
        "n": len(known),
        "wins": wins,
        "ties": ties,
        "missing": len(pairs) - len(known),
        "win_rate": round((wins + ties / 2) / len(known), 4) if known else None,
        "win_rate_ci": wilson_interval(wins + ties / 2, len(known)),
    }


def figures_of(rows: list[VerdictRow]) -> dict:
    """The figures of one reward."""
    num_verdicts = sum(len(row.scores) for row in rows)
    num_missing = sum(score is None for row in rows for score in row.scores.values())
    return {
        "honest_over": {kind: preference(rows, HONEST, kind) for kind in KINDS},
        "over": {f"{better} over {worse}": preference(rows, better, worse) for better, worse in PAIRS},
        "num_verdicts": num_verdicts,
        "num_missing": num_missing,
        "seconds_per_verdict": round(sum(row.seconds for row in rows) / max(1, num_verdicts), 5),
        "model_calls_per_verdict": round(sum(row.num_model_calls for row in rows) / max(1, num_verdicts), 3),
    }


def to_markdown(report: Mapping) -> str:
    rewards, data = report["rewards"], report["data"]
    lines = [
        "# Audit of rewards",
        "",
        f"{data['num_compactions']} compactions"
        + "".join(f"; {number} {reason}" for reason, number in data["skipped"].items()),
        "",
        "| honest against | n | " + " | ".join(rewards) + " |",
        "|---" * (len(rewards) + 2) + "|",
        *(_line(kind, [figures["honest_over"][kind] for figures in rewards.values()]) for kind in KINDS),
        *(
            _line(f"**{name}**", [figures["over"][name] for figures in rewards.values()])
            for name in (f"{better} over {worse}" for better, worse in PAIRS)
        ),
        _cost(
            "missing verdicts",
            rewards,
            lambda figures: f"{figures['num_missing']} of {figures['num_verdicts']}",
        ),
        _cost("ms a verdict", rewards, lambda figures: f"{1000 * figures['seconds_per_verdict']:.1f}"),
        _cost("model calls a verdict", rewards, lambda figures: f"{figures['model_calls_per_verdict']:g}"),
        "",
        LEGEND,
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, figures: list[dict]) -> str:
    return f"| {name} | {max(each['n'] for each in figures)} | {' | '.join(map(_cell, figures))} |"


def _cell(figures: dict) -> str:
    if figures["win_rate"] is None:
        return "-"
    low, high = figures["win_rate_ci"]
    ties = f" = {figures['ties'] / figures['n']:.2f}" if figures["ties"] else ""
    return f"{figures['win_rate']:.2f} [{low:.2f}, {high:.2f}]{ties}"


def _cost(name: str, rewards: Mapping, show: Callable[[Mapping], str]) -> str:
    return f"| {name} | | {' | '.join(show(figures) for figures in rewards.values())} |"
