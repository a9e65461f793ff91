"""Supervised fine-tuning, export with proof, serving."""
