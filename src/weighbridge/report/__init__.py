"""Findings for people and machines; the words come from the cards."""
