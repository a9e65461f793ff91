"""Comparisons of summarizers, and the reports about them."""
