"""Channels over what learns: the loss, gradients, weights and the optimizer."""
