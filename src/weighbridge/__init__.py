"""Contracts and gates for ML training runs and checkpoints: a gate that did not look cannot be green."""

__version__ = "0.1.0"
