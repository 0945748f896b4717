"""Forward passes: capture points, traces, float64 by widening, and local errors. Only `trace` works without torch."""
