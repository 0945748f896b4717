"""Contracts: the strict loader, the schema, lint, and resolving."""
