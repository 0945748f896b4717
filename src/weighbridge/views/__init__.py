"""Read-only, overlayable ways to look at a subject."""
