"""Channels over what learns: the loss, gradients and weights."""
