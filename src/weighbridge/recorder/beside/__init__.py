"""Channels of what a recorder keeps beside the rows: analysis checkpoints, and what is known by heart."""
