"""The domain of condensery: messages, trajectories, compactions, summaries, and what can be said of them."""

__version__ = "0.1.0"
