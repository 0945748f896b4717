"""A verb for weighbridge that reads a contract of another style into a draft."""
