"""How trials break kinds whose rules are too many for a table in the kind's own module; none knows a judge."""
