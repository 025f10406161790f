"""The independent checker: it knows what a problem and a schedule are, and nothing else."""
