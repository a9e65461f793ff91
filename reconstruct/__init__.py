"""Training without a teacher: a summary is good if a frozen model can restore hidden history from it."""
