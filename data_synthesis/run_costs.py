"""What the recorded calls of some runs cost, in tokens and, with prices, in money."""

from collections.abc import Iterable
from pathlib import Path

from condensery.files.jsonl import scan_jsonl

COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens")


def costs_of(directories: Iterable[Path]) -> dict[str, dict[str, int]]:
    """Tokens by kind of call (explorer, summary), out of each run's `calls.jsonl`; `uncounted` tells how many
    calls came back without a count."""
    costs: dict[str, dict[str, int]] = {}
    for directory in directories:
        path = directory / "calls.jsonl"
        for _, row in scan_jsonl(path) if path.exists() else ():
            if not isinstance(row, dict) or row.get("kind") not in ("explorer", "summary"):
                continue
            kind = costs.setdefault(row["kind"], dict.fromkeys(["calls", "uncounted", *COUNTS], 0))
            kind["calls"] += 1
            kind["uncounted"] += row.get("prompt_tokens") is None
            for name in COUNTS:
                kind[name] += row.get(name) or 0
    return costs


def money(costs: dict[str, int], per_million: dict[str, float]) -> dict[str, float]:
    """{"full", "with_cache"}: without and with the discount on tokens that the endpoint had in its cache."""
    written = costs["completion_tokens"] * per_million["completion"]
    new = (costs["prompt_tokens"] - costs["cached_tokens"]) * per_million["prompt"]
    cached = costs["cached_tokens"] * per_million["cached"]
    full = costs["prompt_tokens"] * per_million["prompt"] + written
    return {"full": round(full / 1e6, 4), "with_cache": round((new + cached + written) / 1e6, 4)}
