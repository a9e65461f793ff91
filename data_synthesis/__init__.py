"""From questions or agent logs to trajectories, compactions and (conversation, summary) pairs."""
