"""When to compact: rules, not the agent's choice (ReSum, FACTS 1)."""


def token_budget(window_tokens: int, share: float = 0.9, reserve_tokens: int = 1000) -> int:
    """ReSum's trigger level: `share` of the window after `reserve_tokens` are set aside for the next answer.

    With a 32k window: 0.9 x (32 x 1024 - 1000) = 28,591 tokens.
    """
    return int(share * (window_tokens - reserve_tokens))


def compaction_due(
    num_tokens: int, budget_tokens: int, rounds_since: int, every_rounds: int | None = None
) -> bool:
    """Whether history must be replaced now: the budget is reached, or `every_rounds` rounds have passed."""
    return num_tokens >= budget_tokens or (every_rounds is not None and rounds_since >= every_rounds)
