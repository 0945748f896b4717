"""Readers of checkpoint formats, and of what they are written in."""
