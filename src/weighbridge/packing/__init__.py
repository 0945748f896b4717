"""Weights stored as codes."""
