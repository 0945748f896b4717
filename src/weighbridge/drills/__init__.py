"""Experiments that break one thing of a small training on purpose, and patterns of runs that were diagnosed."""
