"""The domain of condensery: messages, trajectories, compactions, summaries, and what may be said about
them.
"""

__version__ = "0.1.0"
