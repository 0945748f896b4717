"""What several kinds share: columns of runs, pairs of tensors, bits, forward passes."""
