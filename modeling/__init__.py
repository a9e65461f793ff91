"""What every stage with a model needs: loading, chat templates and masks, log-probabilities, generation."""
