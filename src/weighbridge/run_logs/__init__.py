"""Readers of run logs: step tables, recorded run directories, and what their columns hold."""
