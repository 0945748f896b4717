"""A model without a pass over it: the points of its architecture, and one step of it as a script."""
