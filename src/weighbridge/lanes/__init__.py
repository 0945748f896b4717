"""Files of a project: which job decides which gate, and what is excused."""
