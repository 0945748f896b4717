"""Which tensors of a source make which tensor of a candidate, and how: pure, over headers and metadata alone."""
