"""What a set of pairs holds, for people (`data_card.md`) and for programs (`data_card.json`)."""

from collections import Counter
from collections.abc import Iterable

from data_synthesis.pair import Dropped, Pair

PERCENTILES = (0, 50, 90, 99, 100)


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


def percentiles(values: Iterable[int]) -> dict[str, int]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {f"p{share}": ordered[round(share / 100 * (len(ordered) - 1))] for share in PERCENTILES}


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
    for name in ("languages", "authors", "prompt_templates", "compaction_index", "dropped"):
        values = ", ".join(f"{key} {count}" for key, count in card[name].items()) or "none"
        lines.append(f"- {name.replace('_', ' ')}: {values}")
    if card["compression_ratio"] is not None:
        lines.append(f"- compression ratio: {card['compression_ratio']:.3f}")
    lines.append(
        f"- statements with a value that the history does not hold: {card['unsupported_statements']:.3f}"
    )
    return "\n".join(lines) + "\n"
