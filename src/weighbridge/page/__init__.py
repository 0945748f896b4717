"""The page: what bundles came to, one file for a browser, readable without script, style or network."""
