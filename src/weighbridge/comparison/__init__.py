"""How an import's tensors relate to its source's: name mappings, casts, alignments, hypotheses."""
