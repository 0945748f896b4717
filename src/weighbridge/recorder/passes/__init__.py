"""Channels over what goes into passes and how they run: batches, modes, and probes of a few rows."""
