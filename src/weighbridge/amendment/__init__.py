"""Spec amendments: drafting and the tally."""
