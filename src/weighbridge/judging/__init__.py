"""From measurements and limits to findings."""
