"""Evidence bundles: sealing, unsealing, verifying, redacting."""
