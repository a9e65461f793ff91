"""Agent logs of five families, told apart by shape and translated into our Message at this border."""
