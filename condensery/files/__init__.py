"""Files that survive a crash, run directories, and the config parser. Knows nothing of agents."""
