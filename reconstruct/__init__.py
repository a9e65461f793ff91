"""Training a summarizer without a teacher: rewards from what a summary restores, and their audit."""
