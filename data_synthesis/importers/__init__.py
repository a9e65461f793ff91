"""Agent logs told apart by shape and translated into our Message at this border (docs/log_formats.md)."""
