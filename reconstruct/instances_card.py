"""What a set of instances holds, for people (`data_card.md`) and for programs (`data_card.json`)."""

from collections import Counter
from dataclasses import dataclass

from condensery.percentiles import PERCENTILES, percentiles
from reconstruct.contexts import Context, MeasuredRun, Unused
from reconstruct.instance import Instance


@dataclass(frozen=True)
class Row:
    """An instance's figures without its text; `piece` is what it is where it is not drawn."""

    id: str
    question_id: str
    piece: Unused
    source: str
    language: str
    context_tokens: int
    index: int
    history_tokens: int
    retained_tokens: int
    num_blocks: int
    kinds: Counter[str]
    hidden_kinds: Counter[str]


def row_of(instance: Instance, measured: MeasuredRun, context: Context) -> Row:
    return Row(
        id=instance.id,
        question_id=instance.compaction.question_id,
        piece=measured.unused(context.start, context.context_tokens, "not_drawn", "left out by --limit"),
        source=instance.source,
        language=instance.language,
        context_tokens=context.context_tokens,
        index=instance.compaction.index,
        history_tokens=measured.history_tokens(context),
        retained_tokens=measured.tokens(context.expired_until, context.end),
        num_blocks=len(instance.blocks),
        kinds=Counter(block.kind for block in instance.blocks),
        hidden_kinds=Counter(instance.blocks[index].kind for mask in instance.masks for index in mask),
    )


def describe_instances(rows: list[Row], unused: list[Unused], held_out: set[str], counted_with: str) -> dict:
    """All figures of the card. `held_out` are questions, `counted_with` names the tokenizer."""
    reasons = Counter(piece.reason for piece in unused)
    pieces = [*(row.piece for row in rows), *unused]
    return {
        "instances": len(rows),
        "held_out": sum(row.question_id in held_out for row in rows),
        "funnel": {
            "trajectories": len({(piece.file, piece.trajectory_id) for piece in pieces}),
            "contexts": len(pieces),
            "usable": len(rows) + reasons["not_drawn"],
            "instances": len(rows),
        },
        "unused": dict(reasons.most_common()),
        "groups": [
            {"source": source, "language": language, "context_tokens": tokens, "instances": count}
            for (source, language, tokens), count in sorted(
                Counter((row.source, row.language, row.context_tokens) for row in rows).items()
            )
        ],
        "compaction_index": {
            str(index): count for index, count in sorted(Counter(row.index for row in rows).items())
        },
        "tokens_counted_with": counted_with,
        "spread": {
            "history tokens": percentiles(row.history_tokens for row in rows),
            "retained tokens": percentiles(row.retained_tokens for row in rows),
            "blocks": percentiles(row.num_blocks for row in rows),
            "history tokens a block": percentiles(row.history_tokens // row.num_blocks for row in rows),
        },
        "block_kinds": dict(sum((row.kinds for row in rows), Counter()).most_common()),
        "hidden_kinds": dict(sum((row.hidden_kinds for row in rows), Counter()).most_common()),
    }


def to_markdown(card: dict, sources: list[str]) -> str:
    lines = [
        "# Data card",
        "",
        f"{card['instances']} training contexts from {', '.join(sources)}, of which "
        f"{card['held_out']} are held out.",
        "",
    ]
    lines += ["| source | language | context tokens | instances |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(map(str, group.values()))} |" for group in card["groups"]]
    lines += ["", f"Tokens, counted with {card['tokens_counted_with']}:", ""]
    lines += ["| of | " + " | ".join(f"p{share}" for share in PERCENTILES) + " |", "|---" * 6 + "|"]
    lines += [
        f"| {name} | " + " | ".join(map(str, row.values())) + " |" for name, row in card["spread"].items()
    ]
    lines += ["", "- " + " -> ".join(f"{count} {name}" for name, count in card["funnel"].items())]
    for name in ("unused", "compaction_index", "block_kinds", "hidden_kinds"):
        values = ", ".join(f"{key} {count}" for key, count in card[name].items()) or "none"
        lines.append(f"- {name.replace('_', ' ')}: {values}")
    return "\n".join(lines) + "\n"
