"""Cards and glossary read; every example and specimen run."""
