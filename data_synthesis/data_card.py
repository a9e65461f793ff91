"""What a set of pairs holds, for people (`data_card.md`) and for programs (`data_card.json`)."""

from collections import Counter
from dataclasses import dataclass, field

from condensery.percentiles import PERCENTILES, percentiles
from condensery.trajectory import Trajectory
from data_synthesis.pair import Dropped, Pair
from data_synthesis.run_costs import money


@dataclass
class Origin:
    """From rollouts to accepted summaries, counted run by run: their text need not be in memory."""

    funnel: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(["rollouts", "with_compaction", "summaries", "accepted"], 0)
    )
    terminations: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, run: Trajectory) -> None:
        self.funnel["rollouts"] += 1
        self.funnel["with_compaction"] += bool(run.cuts)
        self.funnel["summaries"] += len(run.cuts)
        self.funnel["accepted"] += sum(cut.summary is not None for cut in run.cuts)
        self.terminations[run.termination] += 1
        self.failures.update(cut.failure for cut in run.cuts if cut.failure)


def describe_pairs(splits: dict[str, list[Pair]], dropped: list[Dropped], counted_with: str) -> dict:
    """All figures of the card. `counted_with` names the tokenizer."""
    pairs = [pair for rows in splits.values() for pair in rows]
    num_statements = sum(pair.num_statements for pair in pairs)
    return {
        "pairs": len(pairs),
        "splits": {
            name: {
                "pairs": len(rows),
                "questions": len({row.question_id for row in rows}),
                "trajectories": len({row.trajectory_id for row in rows}),
            }
            for name, rows in splits.items()
        },
        "dropped": dict(Counter(row.reason for row in dropped).most_common()),
        "languages": dict(Counter(pair.language for pair in pairs).most_common()),
        "authors": dict(Counter(pair.author for pair in pairs).most_common()),
        "prompt_templates": dict(Counter(pair.prompt_template for pair in pairs).most_common()),
        "units": dict(Counter(pair.unit or "not told" for pair in pairs).most_common()),
        "hard": sum(bool(pair.hard) for pair in pairs),
        "compaction_index": {
            str(index): count for index, count in sorted(Counter(pair.index for pair in pairs).items())
        },
        "tokens_counted_with": counted_with,
        "tokens": {
            "history": percentiles(pair.history_tokens for pair in pairs),
            "prompt": percentiles(pair.prompt_tokens for pair in pairs),
            "completion": percentiles(pair.completion_tokens for pair in pairs),
            "row": percentiles(pair.prompt_tokens + pair.completion_tokens for pair in pairs),
        },
        "compression_ratio": _ratio(pairs),
        "unsupported_statements": sum(pair.num_unsupported for pair in pairs) / (num_statements or 1),
    }


def describe_origin(
    origin: Origin, costs: dict[str, dict[str, int]], prices: dict[str, float] | None
) -> dict:
    """From rollouts to accepted summaries, and what their calls took."""
    card: dict = {
        "funnel": origin.funnel,
        "terminations": dict(origin.terminations.most_common()),
        "summary_failures": dict(origin.failures.most_common()),
        "trajectories_without_compaction": origin.funnel["rollouts"] - origin.funnel["with_compaction"],
        "costs": costs,
    }
    if prices:
        card["money"] = {kind: money(row, prices) for kind, row in costs.items()}
    return card


def _ratio(pairs: list[Pair]) -> float | None:
    """1 - summary tokens / history tokens, over all compactions (SUMONE's CR)."""
    num_history = sum(pair.history_tokens for pair in pairs)
    return 1 - sum(pair.completion_tokens for pair in pairs) / num_history if num_history else None


def to_markdown(card: dict, sources: list[str]) -> str:
    lines = ["# Data card", "", f"{card['pairs']} pairs from {', '.join(sources)}.", ""]
    lines += ["| split | pairs | questions | trajectories |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {row['pairs']} | {row['questions']} | {row['trajectories']} |"
        for name, row in card["splits"].items()
    ]
    lines += ["", f"Tokens, counted with {card['tokens_counted_with']}:", ""]
    lines += ["| of | " + " | ".join(f"p{share}" for share in PERCENTILES) + " |", "|---" * 6 + "|"]
    lines += [
        f"| {name} | " + " | ".join(map(str, row.values())) + " |" for name, row in card["tokens"].items()
    ]
    lines.append("")
    steps = [*card["funnel"].items(), ("pairs", card["pairs"])]
    lines.append("- " + " -> ".join(f"{count} {name.replace('_', ' ')}" for name, count in steps))
    for kind, row in card["costs"].items():
        price = card.get("money", {}).get(kind)
        paid = f"; {price['full']:g}, with the cache's discount {price['with_cache']:g}" if price else ""
        uncounted = f" ({row['uncounted']} without a count)" if row["uncounted"] else ""
        lines.append(
            f"- {kind} calls: {row['calls']}{uncounted}, {row['prompt_tokens']} tokens read "
            f"({row['cached_tokens']} from a cache), {row['completion_tokens']} written{paid}"
        )
    names = ("languages", "authors", "prompt_templates", "compaction_index", "units", "terminations")
    for name in (*names, "summary_failures", "dropped"):
        values = ", ".join(f"{key} {count}" for key, count in card[name].items()) or "none"
        lines.append(f"- {name.replace('_', ' ')}: {values}")
    if card["compression_ratio"] is not None:
        lines.append(f"- compression ratio: {card['compression_ratio']:.3f}")
    lines.append(
        f"- statements with a value that the history does not hold: {card['unsupported_statements']:.3f}"
    )
    return "\n".join(lines) + "\n"
