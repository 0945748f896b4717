"""Contracts and gates under pytest."""
