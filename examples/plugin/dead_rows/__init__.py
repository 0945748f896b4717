"""Dead rows: rows of a weight that are all zeros, such as the embedding of a token that a conversion lost."""
