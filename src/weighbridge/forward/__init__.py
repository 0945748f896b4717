"""Forward passes: capture points, traces, float64 by widening, and the local test. Only `trace` works without torch."""
