"""Tiny training runs that fail silently, and as many that do not: what the gates say of each."""
