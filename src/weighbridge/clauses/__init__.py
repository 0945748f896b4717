"""What gate kinds are made of: clauses, the faults that trials inject, and what is asked of every column."""
