"""Readers of what others log, one module a format."""
