"""What several kinds share: columns of runs, pairs of tensors, runs of commands, forward passes."""
