"""Changes to a specification: drafted from bundles, checked by them, landed once, and rendered into one page."""
