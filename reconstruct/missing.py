"""What was asked of a model and did not come: counted by reason, and past a limit a reason to stop.

A failed judge is not a bad summary, so what is missing is no zero. But a run in which half of it is missing
trains on little more than noise, and says nothing of it by itself.
"""

from collections import Counter, deque


class Missing:
    """`what` names it in messages ("judge verdicts"); `window` is how many of the newest are looked at."""

    def __init__(self, what: str, window: int = 64) -> None:
        self.what = what
        self.num_asked = 0
        self.reasons: Counter[str] = Counter()
        self.recent: deque[str | None] = deque(maxlen=window)

    def add(self, reason: str | None) -> None:
        """One more that was asked for; `reason` None: it came."""
        self.num_asked += 1
        self.recent.append(reason)
        if reason is not None:
            self.reasons[reason] += 1

    def stop_above(self, max_share: float) -> None:
        """Raises ValueError, naming the causes, when of the last `window` more than this share is missing.

        Before so many were asked for there is no telling, and nothing is raised.
        """
        reasons = Counter(reason for reason in self.recent if reason is not None)
        if len(self.recent) < (self.recent.maxlen or 0) or reasons.total() <= max_share * len(self.recent):
            return
        causes = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        raise ValueError(
            f"{reasons.total()} of the last {len(self.recent)} {self.what} are missing ({causes}), more than "
            f"the tolerated {max_share:.0%}; see to the model that gives them, then resume"
        )
