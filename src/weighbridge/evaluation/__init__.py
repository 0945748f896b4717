"""Bind, measure, seal and judge."""
