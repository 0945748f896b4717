"""A witness that is not the trainer: starts it, sees all that came of it, writes a book, and stops it at the row."""
