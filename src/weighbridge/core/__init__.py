"""Nouns, exact bytes and what every room may use; imports nothing of ours."""
