"""How a stack computes apart from what it computes: roughly, or with factors that are rounded."""
