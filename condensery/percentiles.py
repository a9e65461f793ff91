"""How a number is spread over rows: what the data cards show of lengths."""

from collections.abc import Iterable

PERCENTILES = (0, 50, 90, 99, 100)


def percentiles(values: Iterable[int]) -> dict[str, int]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {f"p{share}": ordered[round(share / 100 * (len(ordered) - 1))] for share in PERCENTILES}
