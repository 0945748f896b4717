"""Where work runs: threads here, engines elsewhere, and what travels to them."""
