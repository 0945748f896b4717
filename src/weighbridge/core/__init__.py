"""Nouns, exact bytes and what every room may use; imports nothing of ours."""

__version__ = "0.1.0"
