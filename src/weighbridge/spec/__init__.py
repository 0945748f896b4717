"""Changes to a specification: drafted from bundles, held against them, landed once, and rendered into one page."""
